"""Part of a Ray run on one node: `python ray_node OPTIONS -- ray start ... -- PROGRAM...`.

Start scripts end in this program. It runs on the node with the engine's interpreter and needs nothing of
grpoflow; a copy is next to the scripts. Every node starts its own Ray process (local_ray.py); without
`ray start ...` an existing cluster is used. The first node waits until all NPUs are registered, runs PROGRAM
with RAY_ADDRESS set, and fails when a node is lost (cluster.py). The other nodes have no PROGRAM
and exit with 0 when the first node's Ray has ended. `ray stop` is not used: it ends every Ray of a machine.
"""

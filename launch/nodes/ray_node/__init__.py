"""One node's part of a run on Ray: `python ray_node OPTIONS -- ray start ... -- PROGRAM...`.

Start scripts end in it. It runs on the node, by the engine's interpreter with the engine's own ray, and
needs nothing of grpoflow: a copy lies beside the scripts. The first node's waits until all NPUs are
registered, runs PROGRAM with RAY_ADDRESS set, and fails when a node is lost; the others' (without PROGRAM)
end with 0 once the first node's Ray is gone. Each ends the Ray that it started and no other: no `ray stop`,
which ends every Ray of the machine. Without `ray start ...` a cluster that is there already is used.
"""

"""What lets mindrlhf and mindformers run unedited on a CPU under MindSpore 2.7.0.

These modules run in the engine's interpreter, which has no grpoflow. They change nothing on disk and nothing
in a process without the variable GRPOFLOW_REHEARSAL, which names a JSON file (`vllm.Script`). What each
function stands on is listed, with lines, in rehearsal/locations.py, and checked before a start.
"""

"""Changes that let unedited mindrlhf and mindformers run on a CPU under MindSpore 2.7.0.

These modules run in the engine's interpreter, without grpoflow. They change nothing on disk, and nothing in a
process without the variable GRPOFLOW_REHEARSAL, which names a file of known answers (script.py).
"""

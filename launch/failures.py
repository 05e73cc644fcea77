"""Known failures as a table: what a log says, why, and what to do. launch.diagnose applies it.

Order matters: of the entries that a log matches, the first one tells most. `{name}` in cause and remedy
stands for the group of that name in the pattern. The patterns were read from logs of real failures, or,
where that takes an NPU, from upstream's source; tests/data/logs/README.md says which.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

Kind = Literal["cause", "follows", "end"]


@dataclass(frozen=True)
class Failure:
    """One known failure."""

    name: str
    sign: str
    """What a reader sees, for the table in README.md."""
    pattern: str
    """Regular expression; ^ and $ stand for a line's ends."""
    cause: str
    remedy: str
    kind: Kind = "cause"
    """follows: told by a process that waited for another one, which has the cause. end: how a process ended,
    which says something only where nothing else does."""


_AGAIN = "then type the same command again: it goes on from the last checkpoint"
_PEER = "find the worker that failed first: the one without this message"
_PIN = "docs/install.md has an installation with versions that fit"

TOLD = Failure(
    "told",
    "error: …",
    r"^error: (?!node )(?P<text>.+)$",
    "{text}",
    "",
)
"""What a program of ours says itself, with its remedy."""

FAILURES: tuple[Failure, ...] = (
    # --- what is installed
    Failure(
        "default_ciphers",
        "cannot import name 'DEFAULT_CIPHERS'",
        r"cannot import name '?DEFAULT_CIPHERS'?",
        "urllib3 2 has no DEFAULT_CIPHERS, which an old botocore, imported on the way to vLLM, wants",
        "in the engine's environment: pip install 'urllib3<2', or pip uninstall boto3 botocore",
    ),
    Failure(
        "msprobe",
        "No module named 'msprobe', or: name 'save' is not defined",
        r"No module named '?msprobe|^NameError: name 'save' is not defined|cannot import name 'save'"
        r"|[\"']save[\"'] not found",
        "msprobe is missing: mindformers and vllm-mindspore take `save` from it",
        "in the engine's environment: pip install mindstudio-probe",
    ),
    Failure(
        "numpy_2",
        "compiled using NumPy 1.x cannot be run in NumPy 2",
        r"compiled using NumPy 1\.x cannot be run in|numpy\.core\.multiarray failed to import"
        r"|numpy\.dtype size changed|\bnumpy=2\S*: must be|returned (?:a result with an exception set"
        r"|NULL without"
        r" setting an exception)|_ARRAY_API not found",
        "NumPy 2 with packages built for NumPy 1: single operators of MindSpore end with SystemError",
        "pip install 'numpy<2' in the environment that failed",
    ),
    Failure(
        "safetensors_0_8",
        "safetensors=0.8.0: must be <0.8",
        r"safetensors=0\.8\S*: must be|safetensors 0\.8\S* .*incompatible",
        "safetensors 0.8.0 writes slices that are not contiguous wrongly, without a word: checkpoints that"
        " MindSpore wrote with it are damaged wherever model_parallel > 1",
        "pip install 'safetensors<0.8'; write again what was written with 0.8",
    ),
    Failure(
        "antlr",
        "Could not deserialize ATN with version",
        r"Could not deserialize ATN with version",
        "another antlr4-python3-runtime than Hydra's grammar was made with (Hydra 1.3 wants 4.9.3)",
        "keep grpoflow and the engine in environments of their own: engine.python; here"
        " pip install antlr4-python3-runtime==4.9.3",
    ),
    Failure(
        "vllm",
        "No module named 'vllm'",
        r"^(?:ModuleNotFound|Import)Error: .*(?:No module named '?vllm|\bvllm\S*/)",
        "vLLM or vllm-mindspore is not installed, not built for this platform, or of a version that does"
        " not fit",
        "build vllm 0.8.4 with VLLM_TARGET_DEVICE=empty and vllm-mindspore 0.3.0 from source; " + _PIN,
    ),
    Failure(
        "ascend_library",
        "libge_runner.so: cannot open shared object file",
        r"lib(?:ascend|hccl|ge_|acl|runtime|nnopbase|platform|tiling|mki|asdops|atb)\S*\.so\S*:"
        r" cannot open shared object file|Unsupported device target Ascend",
        "CANN's libraries are not found: its (or ATB's) set_env.sh was not sourced, or CANN is not installed",
        "engine.env_scripts=[/usr/local/Ascend/ascend-toolkit/set_env.sh,/usr/local/Ascend/nnal/atb/set_env.sh]",
    ),
    Failure(
        "set_env",
        "set_env.sh: No such file or directory",
        r"set_env\.sh: No such file or directory|ASCEND_HOME_PATH: unbound variable"
        r"|KeyError: '(?:ASCEND_HOME_PATH|ASCEND_OPP_PATH|ASCEND_TOOLKIT_HOME)'",
        "CANN's environment is not set: its set_env.sh is elsewhere or was not sourced",
        "give its real place: engine.env_scripts=[/usr/local/Ascend/ascend-toolkit/set_env.sh]",
    ),
    Failure(
        "operator_library",
        "No module named 'tbe'",
        r"No module named '?(?:tbe|te|te_fusion|hccl|auto_tune|op_gen)\b",
        "CANN's Python packages are not on PYTHONPATH",
        "source CANN's set_env.sh (engine.env_scripts); pip install the te and hccl wheels of its own lib64",
    ),
    Failure(
        "driver",
        "Init driver failed, error code 507…",
        r"drvRetCode=\d+|error code(?:: | is )?5078\d\d|dcmi (?:module )?init(?:ialize)? failed|EL0005",
        "the driver does not answer: a container without the devices, a wrong driver version, a broken card",
        "npu-smi info on that node; in a container pass /dev/davinci*, /dev/davinci_manager,"
        " /dev/devmm_svm,"
        " /dev/hisi_hdc and the driver's directory",
    ),
    Failure(
        "mindspeed_rl_msadapter",
        "No module named 'torch.ops.comm_func'",
        r"No module named 'torch\.ops\.comm_func'"
        r"|cannot import name 'recompute_instance' from 'torch\.autograd'",
        "MindSpeed-RL's MindSpore back end wants MSAdapter in the place of PyTorch (MindSpeed's"
        " mindspore/core/tensor_parallel/mappings.py:19, in the older window moe_layer_overlap_all2all.py:18)"
        ", and a worker found PyTorch: Ray, placement and actors had come up, Megatron had not begun",
        "put MSAdapter before PyTorch on the workers' path, as its set_path.sh does (engine.env_scripts); a"
        " machine without NPUs gets no further",
    ),
    Failure(
        "module",
        "ModuleNotFoundError: No module named 'NAME'",
        r"^ModuleNotFoundError: No module named '(?P<module>(?!acl')[^']+)'",
        # Ray looks for acl on every machine, and goes on without
        "the interpreter that failed has no {module}",
        "is engine.python the right one, are engine.mindrlhf_home and engine.mindformers_home set?"
        " Otherwise"
        " install it there",
    ),
    Failure(
        "import_name",
        "ImportError: cannot import name 'NAME' from 'PACKAGE'",
        r"^ImportError: cannot import name '(?P<what>[^']+)' from '(?P<package>[^']+)'",
        "{package} is of a version without {what}: two packages do not fit together",
        _PIN,
    ),
    Failure(
        "mindspeed_rl_rank",
        "KeyError: 'RANK' (scheduler_ms.py)",
        r"scheduler_ms\.py\", line \d+, in __init__\n(?:.*\n){0,4}?.*KeyError: 'RANK'",
        "MindSpeed-RL reads RANK where MindSpore's workers meet (scheduler_ms.py:38), and nothing sets it",
        "grpoflow's runtime_env.yaml does: does another one stand in rl_config.runtime_env_path, or an empty"
        " RANK in engine.runtime_env?",
    ),
    Failure(
        "mindspeed_rl_port",
        "NameError: name 'self' is not defined (launcher_ms.py)",
        r"launcher_ms\.py\", line \d+, in _get_free_port\n(?:.*\n){0,4}?.*"
        r"NameError: name 'self' is not defined",
        "MindSpeed-RL 05a90d7 names self in a static method of its MindSpore launcher (launcher_ms.py:158):"
        " no run can get past it",
        "in engine.mindspeed_rl_home's mindspeed_rl/workers/scheduler/launcher_ms.py write"
        " sock.bind(('', 0)) in _get_free_port, as 749829d^ has it",
    ),
    Failure(
        "wheel",
        "No matching distribution found for NAME",
        r"^ERROR: No matching distribution found for (?P<package>\S+)",
        "pip finds no {package} for this Python, this machine, or at this index",
        "mindspore 2.7.0 has wheels for Python 3.9 to 3.11; look at PIP_INDEX_URL too",
    ),
    # --- the platform cannot do it
    Failure(
        "cpu_operator",
        "Unsupported op [RmsNorm] on CPU",
        r"Unsupported op \[\w+\] on CPU|Not found op \S+ on device CPU"
        r"|[Uu]nsupported.{0,40}'\w+' on (?:'?CPU)",
        "MindSpore has no kernel of this operator on a CPU (RmsNorm, ReduceScatter, flash attention …)",
        "mindformers and mindrlhf run on Ascend only; on a CPU use engine=local",
    ),
    Failure(
        "backend",
        "Invalid communication backend: CPU for semi_auto_parallel",
        r"Invalid (?:communication )?backend: ?CPU|semi_auto_parallel.{0,80}(?:CPU|not support)",
        "semi_auto_parallel, auto_parallel and dry runs do not exist on a CPU",
        "on a CPU use engine=local",
    ),
    # --- configuration
    Failure(
        "yaml_key",
        "TypeError: …Config.__init__() got an unexpected keyword argument",
        r"^TypeError: (?P<config>\w*(?:Config|Args"
        r"|Params)\w*)\.__init__\(\) got an unexpected keyword argument"
        r" '(?P<key>[^']+)'",
        "{config} of this version does not know the key {key}: the YAML was made for another one",
        "remove it, or check out the commit that it was made for; grpoflow renders by the checkout's own"
        " files"
        " (engine.contract=auto)",
    ),
    # --- mindrlhf: what dies of a setting, which plan refuses now
    Failure(
        "short_row",
        "seq_length should be larger than 2048 when use mask_compression",
        r"seq_length should be larger than 2048 when use mask_compression",
        "mindrlhf packs samples into rows with a compressed mask, and mindformers takes no rows below 2048"
        " with one (modules/transformer/transformer.py:1261)",
        "engine.seq_length=2048, or leave it null: shorter samples are padded",
    ),
    Failure(
        "full_monitor",
        "External object has no attribute old_log_ratio",
        r"has no attribute '?(?:old_log_ratio|clipfrac|kl_loss|actor_loss)\b",
        "mindrlhf e8a8fc1 with enable_full_monitor reads scalars that its GRPOModel does not have"
        " (grpo_models.py:377)",
        "engine.full_monitor=false; KL and clip share are not to be had from that commit",
    ),
    Failure(
        "constant_rate",
        "For 'CosineDecayLR', the 'max_lr' must be greater than the 'min_lr'",
        r"'CosineDecayLR', the 'max_lr' must be greater than the 'min_lr'",
        "the last learning rate equals the first: mindrlhf builds a CosineDecayLR whatever the schedule is"
        " (mindrlhf/utils/utils.py:375)",
        "train.schedule=linear or cosine with train.final_share below 1",
    ),
    Failure(
        "offloaded_optimizer",
        "FunctionGraph ID : mindrlhf_utils_adam_AdamWeightDecayOp_construct",
        r"number of provided arguments is 1\.\n(?:.*\n){0,4}?.*AdamWeightDecayOp",
        "opt_offload's optimizer (mindrlhf/utils/adam.py:161) wants an argument that the training cell"
        " does not give it",
        "layout.train.opt_offload=false; layout.train.recompute=true or more model_parallel save memory",
    ),
    Failure(
        "vllm_debugging",
        "'numpy.ndarray' object has no attribute 'outputs'",
        r"'numpy\.ndarray' object has no attribute 'outputs'",
        "use_vllm=2 of mindrlhf e8a8fc1 reads what MindFormers generated as if vLLM had"
        " (infer_worker.py:388)",
        "engine.use_vllm=1, or 0 with layout.generate.data_parallel of at least 2",
    ),
    Failure(
        "vocabulary",
        "The token id 130 is out of the size of vocabulary",
        r"The token id (?P<id>\d+) is out of the size of vocabulary",
        "mindrlhf's class for Qwen2.5 met the id {id}, which its vocabulary does not have: it was made for"
        " other ids, its special tokens are constants (qwen2_5_tokenizer.py)",
        "engine.tokenizer=file, which reads the model's own tokenizer.json",
    ),
    Failure(
        "world_size",
        "The world_size is set to -1, not initialized by TORCHRUN",
        r"The world_size is set to -1, not initialized by TORCHRUN",
        "mindrlhf's start of vLLM asks for WORLD_SIZE (vllm_v_general/parallel_state.py:136), which neither"
        " its run_grpo_vllm.sh nor msrun sets",
        "+engine.env.WORLD_SIZE='N' with the number of all workers",
    ),
    Failure(
        "heads",
        "n_kv_heads must be a multiple of model_parallel",
        r"(?:n_kv_|num_\w{0,20})heads?\b\D{0,80}(?:multiple of|divisible by|must be divided)"
        r".{0,80}(?:model|parallel|mp)",
        "the heads do not divide by model_parallel (times the Ulysses part of context_parallel)",
        "choose a smaller layout.train.model_parallel: grpoflow layouts lists those that fit",
    ),
    Failure(
        "worker_num",
        "worker_num must be greater than 0",
        r"worker_num must be greater than 0|local_worker_num.{0,40}(?:larger"
        r"|greater) than.{0,20}worker_num",
        "msrun was told numbers of workers that do not fit",
        "worker_num is the sum over nodes, local_worker_num this node's share",
    ),
    # --- files
    Failure(
        "directory_as_checkpoint",
        "IsADirectoryError … save_checkpoint",
        r"^IsADirectoryError: .*(?:save_checkpoint|ckpt_file_name|[Ii]s a directory)",
        "the target of a conversion is a directory; convert_weight.py's --mindspore_ckpt_path is a FILE",
        "give a path such as DIR/model.ckpt, or use grpoflow convert, which takes a directory",
    ),
    Failure(
        "meta_json",
        "json.decoder.JSONDecodeError … meta.json",
        r"meta(?:_path|\.json|_json)(?:.*\n){0,40}?(?:json\.decoder\.)?JSONDecodeError",
        "meta.json is not valid: mindrlhf writes it over without cutting it first, so that a shorter"
        " text leaves"
        " the end of the longer one",
        "grpoflow repairs it from the checkpoints' names when it goes on: type the same command again;"
        " by hand:"
        ' write {{"last_epoch", "last_step", "last_ckpt_file"}} of the newest file',
    ),
    Failure(
        "index_json",
        "Please complete abstract function obtain_name_map",
        r"Please complete abstract function obtain_name_map"
        r"|No such file or directory: '\S*model\.safetensors\.index\.json'",
        "mindrlhf's hf_safetensors needs a model.safetensors.index.json; models of one file (0.5B, 1.5B)"
        " have none",
        "let grpoflow start the run: it adds the index to a directory of links",
    ),
    Failure(
        "damaged_weights",
        "Error while deserializing header",
        r"SafetensorError: .*(?:[Hh]eader|IncompleteBuffer|MetadataIncompleteBuffer)",
        "a .safetensors file is cut off or is none (a Git LFS pointer, a web page)",
        "fetch it again; grpoflow verify --deep names damaged artifacts of the store",
    ),
    Failure(
        "tokenizer",
        "Can't load tokenizer",
        r"Can't load tokenizer for|Couldn't instantiate the backend tokenizer|No such file or directory:"
        r" '\S*(?:tokenizer\.json|vocab\.json|merges\.txt)'",
        "the model directory holds no tokenizer (vocab.json, merges.txt, tokenizer.json)",
        "give a complete Hugging Face directory as model.path, or model.tokenizer_path",
    ),
    Failure(
        "shape",
        "load_param_into_net … shape",
        r"For 'load_param_into_net'.{0,400}?shape|size mismatch for \S+: copying a param",
        "the checkpoint's shapes are not the model's: another size, or another layout than it was split for",
        "split it again for this layout (grpoflow split or reshard); look at model= and layout=",
    ),
    Failure(
        "mindrecord",
        "MindRecord … Invalid file",
        r"Invalid file, (?:failed to open|.{0,40}mindrecord)|patten \[\S*mindrecord\S*\] can not be found"
        r"|Unexpected error\. Invalid file.{0,200}mindrecord|mindrecord.{0,80}(?:does not exist|not exist)",
        "the MindRecord file is not there, or its .db is not beside it under its own name",
        "move both files together and never rename them; make them again with grpoflow tokenize",
    ),
    Failure(
        "disk_full",
        "No space left on device",
        r"No space left on device|[Dd]isk quota exceeded|Errno 28\b|os error 28\b",
        "the disk (or the quota) is full",
        "free space (grpoflow gc --keep 3 --delete) or choose another store=DIR, " + _AGAIN,
    ),
    Failure(
        "read_only",
        "Permission denied",
        r"^PermissionError: \[Errno 13\] Permission denied: '?(?P<path>[^'\n]*)|Read-only file system"
        r"|^error: .*: Permission denied",
        "a file or directory must not be written or read by this user",
        "mind the owner and the umask (MindSpore makes files of mode 0400); choose another store=DIR",
    ),
    Failure(
        "open_files",
        "Too many open files",
        r"Too many open files|Errno 24\b",
        "the limit of open files of this user is too small",
        "raise it before the start: ulimit -n 65535",
    ),
    # --- memory
    Failure(
        "device_memory",
        "Memory not enough: Device(id:0) memory isn't enough and alloc failed",
        r"memory isn't enough and alloc failed|Memory not enough|Out of memory, Alloc GE memory failed"
        r"|EL0004"
        r"|Out of [Mm]emory!!! Request memory size|NPU out of memory",
        "a card's memory is full",
        "grpoflow layouts shows layouts that need less; layout.train.recompute=true, opt_offload=true (not"
        " with mindrlhf, which dies of it), a smaller"
        " engine.gpu_memory_utilization or engine.batch_size, shorter rollout.max_tokens",
    ),
    Failure(
        "host_memory",
        "MemoryError, std::bad_alloc, Cannot allocate memory",
        r"^(?:numpy\.\S+)?_?(?:Array)?MemoryError|std::bad_alloc|^RuntimeError: Allocate memory failed"
        r"|Cannot allocate memory|Errno 12\b"
        r"|oom-kill|Out of memory: Kill",
        "this machine's memory is full",
        "fewer workers, a smaller model or batch; free -g while it runs",
    ),
    # --- numbers
    Failure(
        "nan",
        "loss is nan",
        r"^error: .*(?:not finite|[Nn]a[Nn]\b)|\bloss[:=] ?nan\b|actor_loss[^,\n]{0,20}: ?nan\b",
        "the numbers ran away: the loss is not a number",
        "lower train.learning_rate, keep train.max_grad_norm=1.0, and go on from an earlier checkpoint"
        " (train.resume_from)",
    ),
    # --- the way to others
    Failure(
        "port",
        "Address already in use",
        r"Address already in use|EADDRINUSE|errno: ?98\b|Errno 98\b|master_port=\S*: cannot be bound",
        "another process listens on this port, often an earlier run's scheduler",
        "leave launcher.master_port null to have a free one found, or end the old process (ss -ltnp)",
    ),
    Failure(
        "hub_certificate",
        "CERTIFICATE_VERIFY_FAILED",
        r"CERTIFICATE_VERIFY_FAILED|certificate verify failed",
        "the certificate of the hub, or of a proxy on the way, is not known here",
        "REQUESTS_CA_BUNDLE=FILE with your organisation's certificate",
    ),
    Failure(
        "proxy",
        "ProxyError, Unable to connect to proxy",
        r"ProxyError|Unable to connect to proxy|Tunnel connection failed",
        "the proxy that HTTPS_PROXY names does not answer or refuses",
        "mend HTTPS_PROXY and NO_PROXY; or fetch elsewhere and set model.path, fetch.cache_dir",
    ),
    Failure(
        "name_resolution",
        "Name or service not known",
        r"Name or service not known|Temporary failure in name resolution|Could not resolve host(?:name)?"
        r"|NameResolutionError|getaddrinfo failed",
        "a host's name is not known here: no network, no name server, or a wrong name",
        "for the hub: a proxy, fetch.endpoint, or model.path with fetch.offline=true; for nodes:"
        " launcher.hosts",
    ),
    Failure(
        "ssh",
        "Permission denied (publickey), Connection refused",
        r"Permission denied \(publickey|Host key verification failed"
        r"|^ssh: connect to host (?P<host>\S+) port \d+: "
        r"(?:Connection refused|No route to host|Connection timed out)",
        "ssh does not get into a node without a password",
        "ssh-copy-id HOST and ssh HOST true once by hand; launcher.ssh holds the command; grpoflow doctor"
        " launcher=ssh tries every host",
    ),
    Failure(
        "machine_lost",
        "node HOST ended with exit code 255 (ssh lost it)",
        r"^error: node (?P<host>\S+) ended with exit code 255 \(ssh lost it\)",
        "the connection to {host} went away: the machine, or the network between",
        "is it up again? Type the same command again: it goes on from the last checkpoint",
    ),
    Failure(
        "msrun_missing",
        "msrun: command not found",
        r"msrun: (?:command )?not found",
        "the environment that was started has no MindSpore: msrun stands beside its interpreter",
        "engine.python=PYTHON of the environment with mindspore",
    ),
    Failure(
        "wrong_address",
        "Cannot assign requested address",
        r"Cannot assign requested address|errno: ?99\b|Errno 99\b",
        "the meeting's address is not this machine's",
        "launcher.master_addr: an address of the first node that all nodes reach",
    ),
    Failure(
        "device_busy",
        "EJ0001, HCCP process",
        r"EJ0001|[Ff]ailed to initialize the HCCP process|device is (?:already )?(?:occupied|in use)",
        "another process holds the card",
        "npu-smi info shows it; end it, or wait until it has ended",
    ),
    Failure(
        "rank_table",
        "EI0004, ranktable",
        r"EI0004|[Rr]anktable.{0,60}(?:invalid|not match|inconsistent)",
        "the rank table, or the numbers of workers, differ between nodes",
        "start every node with the same worker_num; unset RANK_TABLE_FILE",
    ),
    Failure(
        "operator_compile",
        "EZ9999, aicore error",
        r"EZ9999|aicore (?:error|exception|timeout)|error code(?:: | is )?507015",
        "an operator failed on the card: shapes it does not take, a fault of CANN's kernels or of the card",
        "look at the operator named there; CANN, driver and MindSpore must fit (grpoflow doctor)",
    ),
    # --- those who waited for somebody else
    Failure(
        "hccl_timeout",
        "EI0002 / EI0006: … times out",
        r"EI0002|EI0006|wait execution of the Notify register times out|[Gg]etting socket times out"
        r"|connected p2p timeout|HCCL.{0,60}time(?:d )?out|507048"
        r"|(?:remote |src)[Rr]ank\W{0,4}(?P<peer>\d+)\b(?!\.)",
        "this card waited for another one that never came: it failed, hangs, or works far longer",
        _PEER + "; if none failed: HCCL_CONNECT_TIMEOUT, HCCL_EXEC_TIMEOUT, the network (hccn_tool)",
        "follows",
    ),
    Failure(
        "msrun_ended",
        "Worker process 4711 exit with exception. Error code: 1",
        r"Worker process (?P<pid>\d+) exit with exception|Distributed job exited with exception",
        "one worker ended with an error, and msrun ended the others",
        "read its log: the worker whose lines carry this process's number",
        "follows",
    ),
    Failure(
        "node_lost",
        "The node: 1 is timed out",
        # MindSpore's "worker 0 is the first one timed out" names the lowest number, not the first
        r"The node: ?(?P<peer>\d+) is timed out|Timed out node list is",
        "a worker gave no sign of life any more",
        _PEER,
        "follows",
    ),
    Failure(
        "cluster",
        "Failed to initialize distributed job cluster",
        # its warnings of reconnecting stand in healthy logs too
        r"Failed to initialize distributed job cluster|tcp connection to scheduler is lost"
        r"|Cluster initialization failed",
        "the workers did not come together: one did not start, or the scheduler is not reached at"
        " master_addr:master_port",
        "does every node run, can the others reach launcher.master_addr (a firewall)? The worker without"
        " this"
        " message did not start",
        "follows",
    ),
    Failure(
        "peer",
        "Connection reset by peer",
        r"Connection reset by peer|Connection closed by (?:remote host|peer)|Broken pipe"
        r"|Gloo.{0,80}(?:closed|reset)"
        r"|Socket Timeout|connection (?:with|to) .{0,60} (?:lost|closed)",
        "the other side of a connection went away",
        _PEER,
        "follows",
    ),
    # --- how a process ended
    Failure(
        "segmentation_fault",
        "Segmentation fault",
        r"Segmentation fault|ended by signal 11"
        r"|process (?P<pid>\d+) exit with exception\. Error code: -11\b|Fatal Python error: Segmentation",
        "a library crashed",
        "known: a MindRecord whose .db belongs to another file, packages built for another NumPy; the lines"
        " above tell where",
        "end",
    ),
    Failure(
        "killed",
        "ended by signal 9 (SIGKILL)",
        r"ended by signal 9 |process (?P<pid>\d+) exit with exception\. Error code: -9\b|^Killed$"
        r"|: line \d+: +\d+ Killed|exit code 137\b",
        "killed from outside: most often the kernel, when this machine's memory was full",
        "dmesg -T | grep -i 'out of memory'; fewer workers, a smaller model or batch",
        "end",
    ),
    Failure(
        "terminated",
        "ended by signal 15 (SIGTERM)",
        r"ended by signal 15 |process (?P<pid>\d+) exit with exception\. Error code: -15\b"
        r"|exit code 143\b|DUE TO TIME LIMIT|CANCELLED AT",
        "ended from outside: a scheduler's time limit, a shutdown, somebody's kill",
        "type the same command again: it goes on from the last checkpoint",
        "end",
    ),
    Failure(
        "one_worker",
        "Running Command: msrun --worker_num=1 … --join=False",
        r"^Running Command: msrun --worker_num=1\s.*--join=False.*$",
        "msrun_launcher.sh waits for nothing by default (JOIN=False): it ends with 0 at once, whatever"
        " becomes of"
        " the program",
        "read output/msrun_log/worker_0.log; call msrun with --join=True, or python itself for one card",
        "end",
    ),
    TOLD,
)


def table() -> str:
    """README.md's table of troubles."""
    rows = ["| the log says | why | what to do |", "|---|---|---|"]
    for one in FAILURES:
        if one is TOLD:
            continue
        cells = (f"`{one.sign}`", _plain(one.cause), _plain(one.remedy))
        rows.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(rows)


def fill(text: str, match: re.Match[str]) -> str:
    """`text` with the groups of a match; what did not take part stays a question mark."""
    return text.format(**{name: value or "?" for name, value in match.groupdict().items()})


def _plain(text: str) -> str:
    names = re.findall(r"(?<!\{)\{(\w+)\}", text)
    return text.format(**{name: name.upper() for name in names})


if __name__ == "__main__":
    print(table())

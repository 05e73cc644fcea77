# ruff: noqa: E501
"""Provoke known failures and keep the logs that they really write.

    python tests/data/logs/provoke.py OUT_DIR --old DIR [NAME ...]

Needs root (another user's rights, a small disk, network of its own). --old holds directories made by
`pip install --no-deps --target DIR/NAME`: numpy2 (numpy 2.2.6), st08 (safetensors 0.8.0), boto (botocore
1.29.76, urllib3 2.0.7, jmespath, python-dateutil, six), antlr (antlr4-python3-runtime 4.13.2), and mindformers
(mindformers 1.6.0 with its requirements; mindrlhf, a checkout of mindspore-ai/mindrlhf at e8a8fc1; mindspeed_rl,
one of Ascend/MindSpeed-RL at 05a90d7). mindrlhf_* need what `make upstream` makes, or its variables.
Every command goes through launch.process.child, as a stage does. README.md tells what each case is.
"""

from __future__ import annotations

import argparse
import contextlib
import http.server
import json
import os
import re
import shutil
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from launch.errors import ProcessFailed
from launch.process import child, msrun
from tests.upstream.sources import ENVIRONMENTS, SOURCES

ROOT = Path(__file__).parents[3]
PYTHON = Path(sys.executable)
MOST_LINES = 120
CASES: dict[str, Callable[[Case], None]] = {}
HEALTHY: dict[str, Callable[[Case], None]] = {}
CHEAP = [
    "model.hidden_size=32", "model.num_hidden_layers=2", "model.intermediate_size=64", "dataset.train_rows=96",
    "dataset.test_rows=32", "sft.steps=4", "sft.warmup_steps=4", "sft.batch_size=16", "sft.check_every=4", "sft.check_prompts=16", "train.steps=4",
    "train.prompts_per_step=4", "train.warmup_steps=1", "train.checkpoint_every=1", "rollout.num_generations=4",
    "rollout.max_tokens=12", "evaluate.sample_prompts=8", "evaluate.batch_prompts=32",
]  # fmt: skip
JOIN = "import mindspore as ms, sys, os, time\nfrom mindspore.communication import init, get_rank\ninit()\n"
ADD = "import numpy as np\nms.ops.AllReduce()(ms.Tensor(np.ones(4, np.float32))).asnumpy()\n"


class Case:
    """One failure: where it may write, and how it runs commands."""

    def __init__(self, name: str, logs: Path, work: Path, old: Path) -> None:
        self.name, self.logs, self.work, self.old = name, logs, work, old

    def run(self, *command: object, log: str = "stage.log", **env: str) -> int:
        """A command with its output in a log; its exit code."""
        base = {key: value for key, value in os.environ.items() if not key.startswith("GRPOFLOW")}
        path = ":".join(filter(None, [env.pop("FIRST", ""), str(ROOT)]))
        environment = msrun.environment(PYTHON, {**base, "PYTHONPATH": path, **env})
        words = [str(word) for word in command]
        try:
            child.run(words, job=f"provoke-{self.name}", log=self.logs / log, env=environment, timeout_s=240)
        except ProcessFailed as error:
            return error.exit_code
        return 0

    def python(self, program: str, **env: str) -> int:
        """A program of its own file, so that tracebacks name it."""
        file = self.work / "program.py"
        file.write_text(program, encoding="utf-8")
        return self.run(PYTHON, file, **env)

    def upstream(self, call: str) -> int:
        """A function of tests/upstream/mindrlhf/faults.py, in mindrlhf's interpreter with its checkouts."""
        homes = {source.name: source.home() for source in SOURCES}
        (python,) = (one.python() for one in ENVIRONMENTS if one.name == "mindspore")
        file, first = self.work / "program.py", ROOT / "tests" / "upstream" / "mindrlhf"
        program = f"import os\n\nimport faults\n\nos.chdir({str(self.work)!r})\nprint(faults.{call})\n"
        file.write_text(program, encoding="utf-8")
        paths = (first, homes["mindrlhf-e8a8fc1"], homes["mindformers-051d65f"])
        return self.run(python, file, FIRST=":".join(map(str, paths)))

    def workers(self, program: str, count: int = 2, port: int | None = None, **env: str) -> int:
        """A program under msrun."""
        file = self.work / "program.py"
        file.write_text(program, encoding="utf-8")
        line = msrun.command(
            [str(file)],
            python=PYTHON,
            workers=count,
            master_addr="127.0.0.1",
            master_port=port or msrun.find_port("127.0.0.1", None),
            log_dir=self.logs,
        )
        return self.run(*line, **env)


def case(function: Callable[[Case], None]) -> Callable[[Case], None]:
    CASES[function.__name__] = function
    return function


@case
def checkpoint_is_a_directory(it: Case) -> None:
    target = it.work / "ms"
    target.mkdir()
    it.python(
        "import mindspore as ms, numpy as np\n"
        f"ms.save_checkpoint([{{'name': 'w', 'data': ms.Tensor(np.ones(4, np.float32))}}], {str(target)!r})\n"
    )


@case
def default_ciphers(it: Case) -> None:
    it.python("import botocore.httpsession\n", FIRST=str(it.old / "boto"))


@case
def port_in_use(it: Case) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        it.workers(JOIN, port=server.getsockname()[1], MS_TOPO_TIMEOUT="20")


@case
def http_port_in_use(it: Case) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        it.run(PYTHON, "-m", "http.server", server.getsockname()[1], "--bind", "127.0.0.1")


@case
def numpy_2(it: Case) -> None:
    it.run(PYTHON, "-m", "pipeline.cli", "run", f"store={it.work}/store", FIRST=str(it.old / "numpy2"))


@case
def numpy_2_abi(it: Case) -> None:
    it.python("import pyarrow\n", FIRST=f"{it.old / 'numpy2'}:{it.old / 'pa14'}")


@case
def safetensors_0_8(it: Case) -> None:
    it.run(
        PYTHON, "-m", "pipeline.cli", "run", f"store={it.work}/store", FIRST=str(it.old / "st08"),
    )  # fmt: skip


@case
def one_worker(it: Case) -> None:
    script = it.old / "mindrlhf" / "scripts" / "msrun_launcher.sh"  # mindformers ships the same
    (it.work / "program.py").write_text("raise SystemExit(7)\n")
    it.run("env", "-C", it.work, "bash", script, "program.py", 1, log="launcher.log")


@case
def rms_norm_on_cpu(it: Case) -> None:
    it.python(
        "import mindspore as ms, numpy as np\n"
        "x = ms.Tensor(np.ones((2, 8), np.float32))\nprint(ms.ops.rms_norm(x, x[0], 1e-6)[0].asnumpy())\n"
    )


@case
def reduce_scatter_on_cpu(it: Case) -> None:
    it.workers(
        JOIN + "import numpy as np\nprint(ms.ops.ReduceScatter()(ms.Tensor(np.ones((4, 4), np.float32))))\n"
    )


@case
def semi_auto_parallel_on_cpu(it: Case) -> None:
    it.workers(JOIN + "ms.set_auto_parallel_context(parallel_mode='semi_auto_parallel')\n" + ADD
               + "net = ms.nn.Dense(4, 4)\nms.set_context(mode=0)\nnet(ms.Tensor(np.ones((4, 4), np.float32)))\n")  # fmt: skip


@case
def mindrlhf_short_row(it: Case) -> None:
    it.upstream("mask({'seq_length': 1152})")


@case
def mindrlhf_full_monitor(it: Case) -> None:
    it.upstream("loss({'full_monitor': True})")


@case
def mindrlhf_constant_rate(it: Case) -> None:
    it.upstream("rate({'lr': 5e-7, 'min_lr': 5e-7, 'warmup_step': 10, 'cosine': True})")


@case
def mindrlhf_offloaded_optimizer(it: Case) -> None:
    it.upstream("optimizer({})")


@case
def mindrlhf_debugging(it: Case) -> None:
    it.upstream("completions({'replicas': 1, 'generations': 2, 'use_vllm': 2})")


@case
def mindrlhf_vocabulary(it: Case) -> None:
    vocabulary = {chr(number): number for number in range(33, 127)}
    (it.work / "vocab.json").write_text(json.dumps(vocabulary), encoding="utf-8")
    (it.work / "merges.txt").write_text("#version: 0.2\n", encoding="utf-8")
    asked = {
        "version": "e8a8fc1",
        "type": "qwen",
        "tokenizer_dir": str(it.work),
        "predict": "",
        "ids": [[65, 130]],
    }
    it.upstream(f"text({asked!r})")


@case
def unknown_yaml_key(it: Case) -> None:
    home = it.old / "mindrlhf"
    program = f"import sys, types\nsys.path.insert(0, {str(home)!r})\n"
    program += "from dataclasses import make_dataclass\n"
    source = home / "mindrlhf" / "configs" / "grpo_configs.py"
    program = (
        "import importlib.util, sys\n"
        f"spec = importlib.util.spec_from_file_location('grpo_configs', {str(source)!r})\n"
        "module = importlib.util.module_from_spec(spec)\nsys.modules['grpo_configs'] = module\n"
        "spec.loader.exec_module(module)\nmodule.RLConfig(dataset_file='x', start_lr=1e-6)\n"
    )
    it.python(program, FIRST=str(it.old / "mindformers"))


@case
def meta_json(it: Case) -> None:
    meta = it.work / "rank_0" / "meta.json"
    meta.parent.mkdir()
    program = (  # as mindrlhf writes it: opened without O_TRUNC, so that a shorter text leaves the longer one's end
        "import json, os\n"
        "for epoch, step in ((0, 1865), (1, 0)):\n"
        f"    with os.fdopen(os.open({str(meta)!r}, os.O_WRONLY | os.O_CREAT, 0o600), 'w') as file:\n"
        "        json.dump({'last_epoch': epoch, 'last_step': step, 'last_ckpt_file': "
        "f'policy_model_rank_0-{epoch}_{step}.safetensors'}, file)\n"
        f"meta_path = {str(meta)!r}\nwith open(meta_path) as meta_json:\n    meta = json.load(meta_json)\n"
    )
    it.python(program)


@case
def disk_full(it: Case) -> None:
    with _small_disk(it.work / "disk") as disk:
        it.python(
            f"import mindspore as ms, numpy as np\nms.save_checkpoint([{{'name': 'w', 'data': ms.Tensor(np.ones(2**20, np.float32))}}], {str(disk / 'w.ckpt')!r})\n"
        )


@case
def disk_full_by_safetensors(it: Case) -> None:
    with _small_disk(it.work / "disk") as disk:
        it.python(
            f"from safetensors.numpy import save_file\nimport numpy as np\nsave_file({{'w': np.ones(2**20)}}, {str(disk / 'w.safetensors')!r})\n"
        )


@case
def permission(it: Case) -> None:
    closed = it.work / "closed"
    closed.mkdir(mode=0o700)
    program = f"open({str(closed / 'w.ckpt')!r}, 'wb')\n"
    it.run("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "/usr/bin/python3", "-c", program)


@case
def killed(it: Case) -> None:
    it.python("import os, signal\nprint('step 12', flush=True)\nos.kill(os.getpid(), signal.SIGKILL)\n")


@case
def kernel_out_of_memory(it: Case) -> None:
    group = Path("/sys/fs/cgroup/memory/grpoflow_provoke")
    group.mkdir()
    try:
        (group / "memory.limit_in_bytes").write_text(str(64 << 20))
        it.python(
            f"import os\nopen({str(group / 'cgroup.procs')!r}, 'w').write(str(os.getpid()))\nprint('loading', flush=True)\nx = bytearray(b'x') * (1 << 30)\n"
        )
    finally:
        group.rmdir()


@case
def memory_error(it: Case) -> None:
    it.python(
        "import resource, numpy as np\nresource.setrlimit(resource.RLIMIT_AS, (2**30, 2**30))\nnp.ones(2**34)\n"
    )


@case
def segmentation_fault(it: Case) -> None:
    it.python("import faulthandler, ctypes\nfaulthandler.enable()\nctypes.string_at(0)\n")


@case
def one_of_two_killed(it: Case) -> None:
    it.workers(
        JOIN
        + ADD
        + "print('step 1', flush=True)\nif get_rank() == 1:\n    os.kill(os.getpid(), 9)\nwhile True:\n    ms.ops.AllReduce()(ms.Tensor(np.ones(4, np.float32))).asnumpy()\n"
    )


@case
def one_of_two_failed(it: Case) -> None:
    it.workers(
        JOIN
        + ADD
        + "if get_rank() == 1:\n    raise ValueError('the third shard is empty')\nwhile True:\n    ms.ops.AllReduce()(ms.Tensor(np.ones(4, np.float32))).asnumpy()\n"
    )


@case
def one_of_two_left(it: Case) -> None:
    it.workers(
        JOIN
        + ADD
        + "if get_rank() == 1:\n    os._exit(3)\nwhile True:\n    ms.ops.AllReduce()(ms.Tensor(np.ones(4, np.float32))).asnumpy()\n"
    )


@case
def one_of_two_out_of_disk(it: Case) -> None:
    with _small_disk(it.work / "disk") as disk:
        it.workers(
            JOIN
            + ADD
            + f"if get_rank() == 1:\n    with open({str(disk / 'x')!r}, 'wb') as file:\n        file.write(bytes(2**23))\nwhile True:\n    ms.ops.AllReduce()(ms.Tensor(np.ones(4, np.float32))).asnumpy()\n"
        )


@case
def nan(it: Case) -> None:
    away = ["sft.enabled=false", "train.learning_rate=1e30", "train.max_grad_norm=null", "layout=dp1_mp1_pp1"]
    it.run(PYTHON, "-m", "pipeline.cli", "run", *CHEAP, *away, f"store={it.work}/store")


@case
def set_env_missing(it: Case) -> None:
    script = it.work / "node_0.sh"
    script.write_text(
        '#!/usr/bin/env bash\n. /usr/local/Ascend/ascend-toolkit/set_env.sh\nset -eu\necho "$ASCEND_HOME_PATH"\n'
    )
    it.run("bash", script)


@case
def no_ascend(it: Case) -> None:
    it.python(
        "import mindspore as ms\nms.set_context(mode=0, device_target='Ascend')\nprint(ms.ops.ones((2,), ms.float32) + 1)\n"
    )


@case
def no_ascend_library(it: Case) -> None:
    it.python("import ctypes\nctypes.CDLL('libascendcl.so')\n")


@case
def no_vllm(it: Case) -> None:
    it.python("import vllm_mindspore\nfrom vllm import LLM, SamplingParams\n")


@case
def transformers_do_not_fit(it: Case) -> None:
    it.python("from transformers import Qwen2TokenizerFast, AdamW\n")


@case
def tokenizer_missing(it: Case) -> None:
    (it.work / "model").mkdir()
    it.python(
        f"from transformers import AutoTokenizer\nAutoTokenizer.from_pretrained({str(it.work / 'model')!r})\n"
    )


@case
def hub_certificate(it: Case) -> None:
    pair = it.work / "pair.pem"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=localhost", "-keyout", pair, "-out", it.work / "cert.pem"], check=True, capture_output=True)  # fmt: skip
    pair.write_text(pair.read_text() + (it.work / "cert.pem").read_text())
    server = http.server.HTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    with _serving(server):
        _fetch(it, f"https://127.0.0.1:{server.server_port}")


@case
def hub_proxy(it: Case) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    _fetch(it, "https://modelscope.cn", HTTPS_PROXY=f"http://127.0.0.1:{port}")


@case
def hub_unknown_host(it: Case) -> None:
    _fetch(it, "https://modelscope.invalid")


@case
def shapes_differ(it: Case) -> None:
    it.python(
        "import mindspore as ms, numpy as np\nnet = ms.nn.Dense(4, 4)\n"
        "ms.load_param_into_net(net, {'weight': ms.Parameter(ms.Tensor(np.ones((8, 4), np.float32)), name='weight')}, strict_load=True)\n"
    )


@case
def truncated_safetensors(it: Case) -> None:
    it.python(
        "from safetensors.numpy import save_file\nfrom safetensors import safe_open\nimport numpy as np, os\n"
        f"f = {str(it.work / 'model.safetensors')!r}\nsave_file({{'w': np.ones(4096)}}, f)\nos.truncate(f, 9000)\nsafe_open(f, 'np')\n"
    )


@case
def no_wheel_for_this_python(it: Case) -> None:
    it.run(
        PYTHON,
        "-m",
        "pip",
        "download",
        "--no-deps",
        "--python-version",
        "3.13",
        "--only-binary=:all:",
        "-d",
        it.work,
        "mindspore==2.7.0",
    )


@case
def msrun_not_found(it: Case) -> None:
    script = it.work / "node_0.sh"
    script.write_text("set -eu\nPATH=/usr/bin:/bin\nexec msrun --worker_num=8 main.py\n")
    it.run("bash", script)


@case
def scheduler_not_reached(it: Case) -> None:
    port = str(msrun.find_port("127.0.0.1", None))
    it.python(
        JOIN,
        MS_ROLE="MS_WORKER",
        MS_WORKER_NUM="2",
        MS_SCHED_HOST="127.0.0.1",
        MS_SCHED_PORT=port,
        MS_TOPO_TIMEOUT="10",
        MS_CLUSTER_RETRY_NUM="2",
        MS_NODE_ID="0",
    )


@case
def wrong_address(it: Case) -> None:
    it.run(PYTHON, "-m", "http.server", 8118, "--bind", "203.0.113.7")


@case
def mindrecord_missing(it: Case) -> None:
    it.python(
        f"import mindspore.dataset as ds\nfor row in ds.MindDataset({str(it.work / 'train.mindrecord')!r}):\n    print(row)\n"
    )


@case
def antlr_does_not_fit(it: Case) -> None:
    it.python(
        "from omegaconf import OmegaConf\nprint(OmegaConf.create({'a': 1, 'b': '${a}'}).b)\n",
        FIRST=str(it.old / "antlr"),
    )


@case
def ssh_refused(it: Case) -> None:
    it.run("ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=5", "-p", "1", "127.0.0.1", "true")


@case
def ssh_unknown_host(it: Case) -> None:
    it.run("ssh", "-o", "BatchMode=yes", "npu-7.invalid", "true")


@case
def too_many_files(it: Case) -> None:
    it.python(
        "import resource\nresource.setrlimit(resource.RLIMIT_NOFILE, (32, 32))\nfiles = [open('/dev/null') for _ in range(64)]\n"
    )


@case
def heads_do_not_divide(it: Case) -> None:
    it.python(
        "from mindformers.models.llama.llama_config import LlamaConfig\n"
        "from mindformers.models.llama.llama_transformer import LLamaAttention\n"
        "from mindformers.modules.transformer import TransformerOpParallelConfig\n"
        "LLamaAttention(seq_length=64, dim=64, n_heads=8, n_kv_heads=2, parallel_config=TransformerOpParallelConfig(data_parallel=1, model_parallel=4))\n",
        FIRST=str(it.old / "mindformers"),
    )


@case
def no_workers(it: Case) -> None:
    it.workers(JOIN, count=0)


@case
def terminated(it: Case) -> None:
    it.python("import os\nprint('step 12', flush=True)\nos.kill(os.getpid(), 15)\n")


@case
def no_tbe(it: Case) -> None:
    it.python("import tbe.common\n")


@case
def no_mindspeed_rl(it: Case) -> None:
    it.python("import mindspeed_rl\n")


MINDSPEED_RL = """
import importlib.util, os, sys, types
from importlib.machinery import ModuleSpec
import ray, ray.cloudpickle

class Bare:  # what the launcher imports besides, and does not reach
    def find_spec(self, name, path=None, target=None):
        return ModuleSpec(name, self, is_package=True) if name.partition(".")[0] in ("acl", "mindspeed_rl") else None
    def create_module(self, spec): return None
    def exec_module(self, module): module.__getattr__ = lambda name: type(name, (), {})
sys.meta_path.append(Bare())
def upstream(name):
    path = os.path.join(os.environ["HOME_OF_IT"], "mindspeed_rl/workers/scheduler", name + ".py")
    spec = importlib.util.spec_from_file_location(name, path)
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    ray.cloudpickle.register_pickle_by_value(module)
    return module
ray.init(num_cpus=1, include_dashboard=False, object_store_memory=80_000_000)
"""


@case
def mindspeed_rl_rank(it: Case) -> None:
    home = it.old / "mindspeed_rl"
    last = "actor = upstream('scheduler_ms').create_worker_group_scheduler('my_scheduler_1', 2)\nray.get(actor.get_status.remote())\n"
    it.python(MINDSPEED_RL + last, log="worker_0.log", HOME_OF_IT=str(home))


@case
def mindspeed_rl_static_self(it: Case) -> None:
    home = it.old / "mindspeed_rl"
    last = "def train(port):\n    return port()\n"
    last += "ray.get(ray.remote(train).remote(upstream('launcher_ms').RayActorGroupMs._get_free_port))\n"
    it.python(MINDSPEED_RL + last, log="worker_0.log", HOME_OF_IT=str(home))


@case
def connection_reset(it: Case) -> None:
    it.python(
        "import socket, struct\n"
        "server = socket.create_server(('127.0.0.1', 0))\nclient = socket.create_connection(server.getsockname())\n"
        "other, _ = server.accept()\nother.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0))\n"
        "other.close()\nclient.recv(1)\n"
    )


@case
def std_bad_alloc(it: Case) -> None:
    it.python(
        "import resource, mindspore as ms\nx = ms.ops.ones((1,), ms.float32)\n"
        "resource.setrlimit(resource.RLIMIT_AS, (2**32, 2**32))\nprint(ms.ops.ones((2**20, 2**14), ms.float32).asnumpy())\n"
    )


@case
def wrong_type_of_config(it: Case) -> None:
    it.run(PYTHON, "-m", "pipeline.cli", "plan", "train.beta=yes", f"store={it.work}/store")


def _fetch(it: Case, endpoint: str, **env: str) -> None:
    model = [
        "model=qwen2_5_0_5b",
        f"fetch.endpoint={endpoint}",
        "fetch.attempts=1",
        "layout=dp1_mp1_pp1",
        "cards=1",
    ]
    it.run(PYTHON, "-m", "pipeline.cli", "run", *model, f"store={it.work}/store", **env)


@contextlib.contextmanager
def _serving(server: http.server.HTTPServer) -> Iterator[None]:
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextlib.contextmanager
def _small_disk(path: Path) -> Iterator[Path]:
    path.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", path], check=True)
    try:
        yield path
    finally:
        subprocess.run(["umount", path], check=True)


def keep(case: Case, target: Path) -> None:
    """Copy the logs, shortened in the middle, with this machine's paths and names taken out."""
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    written = {}
    found = [*case.logs.glob("*.log"), *case.work.glob("store/.logs/*/attempt_*/stage.log")]
    for log in found:
        name = log.name if log.parent == case.logs else f"{log.parents[1].name.partition('-')[0]}.log"
        text = log.read_text(encoding="utf-8", errors="replace")
        for old, new in (
            (str(case.work), "/work"), (str(case.logs), "/logs"), (str(case.old), "/opt/old"),
            (sys.prefix, "/opt/venv"), (str(ROOT), "/opt/grpoflow"), (sys.base_prefix, "/usr"), (socket.gethostname(), "node-a"),
        ):  # fmt: skip
            text = text.replace(old, new)
        text = re.sub(r"/tmp/[^\s'\":,]*", "/tmp/x", text)
        text = re.sub(
            r"^diagnosis: .*\n(?:  .*\n)*", "", text, flags=re.M
        )  # what is to be found must not stand there
        lines = text.splitlines()
        if len(lines) > MOST_LINES:
            cut = len(lines) - MOST_LINES
            lines = [
                *lines[: MOST_LINES // 2],
                f"[… {cut} lines left out here …]",
                *lines[-MOST_LINES // 2 :],
            ]
        lines = [
            line if len(line) <= 600 else f"{line[:600]} [… {len(line) - 600} characters left out]"
            for line in lines
        ]
        (target / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
        written[name] = round(log.stat().st_mtime, 3)
    if len(written) > 1:
        (target / "last_written.json").write_text(json.dumps(written, indent=1) + "\n", encoding="utf-8")


def healthy(function: Callable[[Case], None]) -> Callable[[Case], None]:
    HEALTHY[function.__name__] = function
    return function


@healthy
def two_workers(it: Case) -> None:
    it.workers(JOIN + ADD + "print('step 1 done', get_rank())\n")


@healthy
def two_workers_late(it: Case) -> None:
    it.workers(
        "import os, time\nif os.environ.get('MS_ROLE') == 'MS_SCHED':\n    time.sleep(12)\n" + JOIN + ADD
    )


@healthy
def three_workers_with_logging(it: Case) -> None:
    it.workers(
        JOIN
        + ADD
        + "import logging\nlogging.basicConfig(format='%(asctime)s - %(message)s', level=20)\nfor step in range(400):\n    logging.info('step: %d, loss: %.4f, overflow: False, nan_count: 0', step, 1 / (step + 1))\n",
        count=3,
        GLOG_v="1",
    )


@healthy
def pip_download(it: Case) -> None:
    it.run(PYTHON, "-m", "pip", "download", "--no-deps", "-d", it.work, "annotated-types")


@healthy
def pip_list(it: Case) -> None:
    it.run(PYTHON, "-m", "pip", "list", "--verbose")


@healthy
def pip_in_a_new_environment(it: Case) -> None:
    it.run(PYTHON, "-m", "venv", it.work / "venv")
    it.run(it.work / "venv" / "bin" / "pip", "install", "--upgrade", "pip", "iniconfig")


@healthy
def doctor(it: Case) -> None:
    it.run(PYTHON, "-m", "pipeline.cli", "doctor", f"store={it.work}/store")


@healthy
def doctor_of_mindrlhf(it: Case) -> None:
    it.run(
        PYTHON,
        "-m",
        "pipeline.cli",
        "doctor",
        "engine=mindrlhf",
        f"engine.python={PYTHON}",
        f"store={it.work}/store",
    )


@healthy
def plan(it: Case) -> None:
    it.run(PYTHON, "-m", "pipeline.cli", "plan", f"store={it.work}/store")


@healthy
def layouts(it: Case) -> None:
    it.run(PYTHON, "-m", "pipeline.cli", "layouts", "model=qwen2_5_7b")


@healthy
def whole_run(it: Case) -> None:
    it.run(PYTHON, "-m", "pipeline.cli", "run", *CHEAP, "layout=dp2_mp1_pp1", f"store={it.work}/store")


@healthy
def whole_run_of_one_worker(it: Case) -> None:
    it.run(
        PYTHON,
        "-m",
        "pipeline.cli",
        "run",
        *CHEAP,
        "layout=dp1_mp1_pp1",
        f"store={it.work}/store",
        GLOG_v="2",
    )


@healthy
def around_a_stand_in(it: Case) -> None:
    """engine=mindrlhf with tests/data/mindrlhf_standin: real msrun, log lines as mindrlhf writes them."""
    home = ROOT / "tests" / "data" / "mindrlhf_standin" / "e8a8fc1"
    plain = [word for word in CHEAP if not word.startswith(("sft.", "train."))]
    it.run(PYTHON, "-m", "pipeline.cli", "run", *plain, "engine=mindrlhf", f"engine.mindrlhf_home={home}",
           f"engine.python={PYTHON}", "layout=dp1_mp2_pp1", "train.prompts_per_step=8",
           "train.checkpoint_every=2", f"store={it.work}/store")  # fmt: skip


@healthy
def transformers_with_warnings(it: Case) -> None:
    it.python(
        "import warnings, torch\nfrom transformers import Qwen2Config, Qwen2ForCausalLM\nwarnings.warn('No module named vllm._C: falling back')\nmodel = Qwen2ForCausalLM(Qwen2Config(hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=1, vocab_size=64))\nprint(model.generate(torch.ones((1, 4), dtype=torch.long), max_new_tokens=4, temperature=0.5, do_sample=False))\n"
    )


@healthy
def mindspore_with_warnings(it: Case) -> None:
    it.python(
        "import mindspore as ms, numpy as np\nms.set_context(mode=0, device_target='CPU', jit_config={'jit_level': 'O0'})\nnet = ms.nn.Dense(4, 4)\nprint(net(ms.Tensor(np.ones((2, 4), np.float32))))\nms.load_param_into_net(net, {'other': ms.Parameter(ms.Tensor(np.ones(4, np.float32)), name='other')})\n",
        GLOG_v="1",
    )


@healthy
def retried_download(it: Case) -> None:
    it.python(
        "import logging, urllib.request\nlogging.basicConfig(level=10, format='%(asctime)s %(levelname)s %(message)s')\nfor attempt in range(3):\n    try:\n        urllib.request.urlopen('http://127.0.0.1:1', timeout=1)\n    except OSError as error:\n        logging.warning('attempt %d failed (%s), trying again', attempt, error)\nlogging.info('attempt 3 succeeded')\n"
    )


@healthy
def caught_traceback(it: Case) -> None:
    it.python(
        "import logging\nlogging.basicConfig(level=10)\ntry:\n    import flash_attn\nexcept ImportError as error:\n    logging.warning('flash_attn is not installed (%s); using the plain attention', error)\nprint('epoch 1 done, loss: 0.25, nan: 0, No space was left out, Permission granted')\n"
    )


@healthy
def ssh_version(it: Case) -> None:
    it.run("ssh", "-v", "-V")


@healthy
def disk_usage(it: Case) -> None:
    it.run("df", "-h", "--output=size,used,avail,pcent")
    it.run("free", "-g")


@healthy
def mindrecord_written_and_read(it: Case) -> None:
    f = str(it.work / "train.mindrecord")
    it.python(
        f"import mindspore.dataset as ds\nfrom mindspore.mindrecord import FileWriter\nimport numpy as np\nw = FileWriter({f!r}, 1, overwrite=True)\nw.add_schema({{'ids': {{'type': 'int32', 'shape': [-1]}}}})\nw.write_raw_data([{{'ids': np.ones(4, np.int32)}} for _ in range(8)])\nw.commit()\nprint(sum(1 for _ in ds.MindDataset({f!r})))\n",
        GLOG_v="1",
    )


@healthy
def strategy_files(it: Case) -> None:
    it.run(
        PYTHON,
        "-m",
        "pipeline.cli",
        "strategy",
        "--out",
        it.work / "strategy",
        "--role",
        "train",
        "model=qwen2_5_7b",
        "layout=dp1_mp4_pp2",
    )


@healthy
def reward_probe(it: Case) -> None:
    it.run(PYTHON, "-m", "pipeline.cli", "probe")


@healthy
def sweep_plan(it: Case) -> None:
    it.run(
        PYTHON, "-m", "pipeline.cli", "sweep", "--plan", "-m", "train.beta=0.0,0.01", f"store={it.work}/store"
    )


@healthy
def ray_without_a_cluster(it: Case) -> None:
    it.run(PYTHON, "-c", "import ray; print(ray.__version__)")


@healthy
def unit_tests(it: Case) -> None:
    it.run(
        PYTHON,
        "-m",
        "pytest",
        "-v",
        "-p",
        "no:cacheprovider",
        "tests/launch/test_environment.py",
        "tests/stages/rewards",
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("--old", type=Path, required=True)
    parser.add_argument("names", nargs="*")
    options = parser.parse_intermixed_args()
    cases = {**CASES, **HEALTHY}
    for name in options.names or CASES:
        with tempfile.TemporaryDirectory(prefix="provoke-") as directory:
            logs, work = Path(directory, "logs"), Path(directory, "work")
            logs.mkdir()
            work.mkdir()
            Path(directory).chmod(0o755)
            one = Case(name, logs, work, options.old.absolute())
            try:
                cases[name](one)
            except Exception as error:
                print(f"{name}: {error!r}", flush=True)
            keep(one, options.out / ("failed" if name in CASES else "healthy") / name)
            print(name, flush=True)


if __name__ == "__main__":
    main()

"""MLflow, in files of the artifact unless MLFLOW_TRACKING_URI names a server, which also gets the report.

`python -m stages.grpo.trackers.mlflow RUN FILE` adds a file to a run of the server.
"""

import os
import sys
from collections.abc import Mapping
from importlib import import_module
from typing import Any

from stages.base.keys import flat
from stages.grpo.trackers import PROJECT, Tracker, numbers

os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")  # without it, mlflow 3 refuses files
mlflow: Any = import_module("mlflow")
_PARAMETERS = 100
"""Parameters that one request may hold."""


class Mlflow(Tracker):
    """A run of mlflow."""

    def start(self) -> None:
        server = os.environ.get("MLFLOW_TRACKING_URI")
        self._client = mlflow.MlflowClient(server or (self.directory / "mlruns").as_uri())
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", PROJECT)
        known = self._client.get_experiment_by_name(name)
        experiment = known.experiment_id if known else self._client.create_experiment(name)
        self._run = self._client.create_run(experiment, run_name=self.name).info.run_id
        values = [mlflow.entities.Param(key, str(value)) for key, value in flat(self.config).items()]
        for start in range(0, len(values), _PARAMETERS):
            self._client.log_batch(self._run, params=values[start : start + _PARAMETERS])
        if server:
            (self.directory / "run_id").write_text(self._run, encoding="ascii")

    def add(self, row: Mapping[str, Any]) -> None:
        moment = int(row["time_s"] * 1000)
        metrics = [
            # in files, reward/accuracy would need a directory with the name of the file reward
            mlflow.entities.Metric(name.replace("/", "."), value, moment, row["step"])
            for name, value in numbers(row).items()
        ]
        self._client.log_batch(self._run, metrics=metrics)

    def close(self) -> None:
        self._client.set_terminated(self._run)
        for file in self.directory.glob("mlruns/**/meta.yaml"):  # without the directory of this machine
            text = file.read_text(encoding="utf-8").replace(f"{self.directory.as_uri()}/", "")
            file.write_text(text, encoding="utf-8")


TRACKER = Mlflow

if __name__ == "__main__":
    mlflow.MlflowClient().log_artifact(*sys.argv[1:])

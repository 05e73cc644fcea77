"""Configuration of a supervised run of mindformers, and numbers derived from it."""

from dataclasses import dataclass
from pathlib import Path

from stages.engines import job
from stages.engines.layout_rules import sequence_parts
from stages.engines.mindformers.config import MindformersConfig
from stages.tokenize.config import BLOCKS


@dataclass(frozen=True)
class Job(job.Job):
    """Sections that a run is rendered from."""

    mindformers: MindformersConfig

    @property
    def parallel(self) -> bool:
        """True if mindformers uses several cards."""
        return self.layout.train.cards > 1

    @property
    def is_piped(self) -> bool:
        """True if several cards compute one after the other."""
        return self.layout.train.pipeline_stage > 1

    @property
    def sequence_parts(self) -> int:
        """Parts into which a row is cut."""
        return sequence_parts(self.layout.train)

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns of the records; of blocks of text the model learns every token."""
        return ("input_ids",) if self.tokenize.kind in BLOCKS else ("input_ids", "labels")

    @property
    def examples_at_once(self) -> int:
        """Examples that all replicas compute at once, interleaved parts included."""
        settings = self.mindformers
        per_replica = settings.examples_per_card * settings.micro_batch_interleave_num
        return self.layout.train.data_parallel * per_replica

    @property
    def examples_per_pass(self) -> int:
        """Examples of runner_config.batch_size: on one card all of an update.

        mindformers accumulates gradients in its parallel modes only, and else resets the number of steps to 1
        with a warning (base_trainer.py, _check_gradient_accumulation_steps).
        """
        return self.mindformers.examples_per_card if self.parallel else self.mindformers.batch_size

    @property
    def micro_batches(self) -> int:
        """Parts of a replica's share of a batch.

        Source: base_trainer.py, _check_global_batch_size_for_auto_parallel.
        """
        return max(1, self.mindformers.batch_size // self.examples_at_once)

    @property
    def seq_length(self) -> int:
        """Row length of training; records have one id more, for the shift between inputs and labels."""
        return self.tokenize.sft_length


@dataclass(frozen=True)
class Paths(job.RunPaths):
    """Absolute paths of a run's files."""

    dataset: Path
    """sft.mindrecord."""
    start: Path
    """Weights at the start: a complete directory, or the checkpoint from which the run resumes."""

    @property
    def config(self) -> Path:
        """The rendered YAML."""
        return self.root / "finetune.yaml"

    @property
    def output(self) -> Path:
        """The program's output_dir, which contains checkpoint/rank_N and more."""
        return self.root / "output"

    @property
    def resume(self) -> Path:
        """Directory of the checkpoint from which a run resumes."""
        return self.root / "resume"

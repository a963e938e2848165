"""The settings of training."""

from typing import Annotated

from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass

from transformer_lib.device import DeviceName, Precision
from transformer_lib.model.seq2seq import Count
from transformer_lib.training.schedule import ScheduleName


@dataclass(frozen=True, config=ConfigDict(extra="forbid", strict=True, allow_inf_nan=False))
class TrainingConfig:
    """How long and how to train. Give ``steps`` or ``minutes``.

    Raises:
        ValueError: both or neither of them, or a value out of its range.
    """

    steps: Annotated[Count | None, Field(description="length of training in optimizer steps")] = (
        None
    )
    minutes: Annotated[
        float | None,
        Field(gt=0, description="length of training in minutes"),
    ] = None
    batch_tokens: Annotated[
        Count,
        Field(
            description="the most source tokens in a batch, and the most target tokens, padding "
            "included; but one sentence pair at least"
        ),
    ] = 2048
    row_tokens: Annotated[
        Count | None,
        Field(
            description="put several pairs one after another into rows of this many tokens: for "
            "Transformers on a GPU, where one shape for all batches is faster; longer sentences "
            "are left out"
        ),
    ] = None
    accumulate: Annotated[
        Count,
        Field(description="batches per optimizer step, shared by however many processes there are"),
    ] = 1
    schedule: Annotated[
        ScheduleName,
        Field(
            description='`"budget"` rises to `learning_rate`, then falls to zero at the end of '
            'training; `"noam"` is the schedule of the paper'
        ),
    ] = "budget"
    learning_rate: Annotated[
        float, Field(gt=0, le=10, description="the peak of the budget schedule")
    ] = 2e-3
    warmup_share: Annotated[
        float,
        Field(ge=0, lt=1, description="share of training in which the budget schedule rises"),
    ] = 0.1
    warmup_steps: Annotated[Count, Field(description="steps in which the noam schedule rises")] = (
        4000
    )
    betas: Annotated[
        tuple[Annotated[float, Field(ge=0, lt=1)], Annotated[float, Field(ge=0, lt=1)]],
        Field(description="decay of Adam's two running means"),
    ] = (0.9, 0.98)
    eps: Annotated[float, Field(gt=0, le=1, description="ε of Adam")] = 1e-9
    weight_decay: Annotated[
        float,
        Field(
            ge=0,
            le=10,
            description="matrices and tables that learn by Adam shrink by the rate times this with "
            "each step; norms and biases do not (AdamW, Loshchilov and Hutter 2019)",
        ),
    ] = 0.0
    muon_rate: Annotated[
        float | None,
        Field(
            gt=0,
            le=1,
            description="the matrices of a Transformer's layers learn by Muon, at this peak rate, "
            'with `schedule = "budget"`; by default they learn by Adam, like everything else',
        ),
    ] = None
    counted_start: Annotated[
        bool,
        Field(
            description="start the tables of a Transformer, which must not be one for all "
            "(`tied_embeddings`), from counts of which pieces occur in pairs together"
        ),
    ] = False
    label_smoothing: Annotated[
        float, Field(ge=0, lt=1, description="probability spread evenly over the vocabulary")
    ] = 0.1
    clip_norm: Annotated[
        float,
        Field(gt=0, description="largest norm of the gradient; a larger one is scaled down to it"),
    ] = 1.0
    precision: Annotated[
        Precision,
        Field(description="`auto` is bfloat16 where the hardware multiplies it faster"),
    ] = "auto"
    device: Annotated[
        DeviceName, Field(description="`auto`, `cpu`, `cuda`, `cuda:1` …, or `mps`")
    ] = "auto"
    compile: Annotated[
        bool,
        Field(
            description="torch.compile for a Transformer's layers and the loss (on a GPU "
            "with Triton the loss is compiled in any case)"
        ),
    ] = False
    validations: Annotated[
        Count, Field(description="validations, and checkpoints, at equal distances")
    ] = 6
    validation_sentences: Annotated[
        Count, Field(description="sentences of the validation set that are used")
    ] = 200
    keep_checkpoints: Annotated[Count, Field(description="newest checkpoints that are kept")] = 3
    average_last: Annotated[
        Count,
        Field(description="the final model is the mean of the newest checkpoints, so many at most"),
    ] = 1
    tensorboard: Annotated[bool, Field(description="write a log for TensorBoard as well")] = False

    def __post_init__(self) -> None:
        if (self.steps is None) == (self.minutes is None):
            raise ValueError("give either steps or minutes, as the length of training")
        if self.muon_rate is not None and self.schedule == "noam":
            raise ValueError("muon_rate goes with schedule='budget'; noam has a rate of its own")
        if self.row_tokens is not None and self.row_tokens > self.batch_tokens:
            raise ValueError(
                f"a row of row_tokens={self.row_tokens} does not fit into a batch of "
                f"batch_tokens={self.batch_tokens}"
            )
        if self.average_last > self.keep_checkpoints:
            raise ValueError(
                f"average_last={self.average_last} needs keep_checkpoints of at least as many, "
                f"not {self.keep_checkpoints}"
            )

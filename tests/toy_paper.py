"A paper in 80 lines: text is masked; the sentences of a pair, read apart, are to find each other."

from dataclasses import dataclass

from xlnb.training.objectives import Masking, MaskIds, info_nce, mean_pool
from xlnb.pretraining.held_out import evaluate, held_out_metrics, hold_out
from xlnb.pretraining.pretraining import (
    MaskedLanguageModel,
    Phase,
    Recipe,
    RunSettings,
    check_amounts,
    check_choices,
    fill_in,
    held_out_spec,
    make_batches,
    new_masked_lm,
    prepare_data,
    size_defaults,
)


@dataclass(frozen=True)
class Settings(RunSettings):
    weight: float = 1.0  # of the contrast


def resolve(given):
    check_choices(given)
    full = fill_in(given, steps=24, batch_tokens=256, warmup_steps=2, **size_defaults(given))
    check_amounts(full, "weight")
    return full


class Contrast(MaskedLanguageModel):
    def __init__(self, s, data):
        super().__init__(new_masked_lm(s), Masking(), MaskIds.of(data.tokenizer))
        self.weights = self.weights | {"contrast": s.weight}
        self.names = [*self.names, "contrast"]

    def prepare(self, batch, generator):
        return batch if "group" in batch else super().prepare(batch, generator)

    def counts(self, batch):
        return {"contrast": len(batch["group"])} if "group" in batch else super().counts(batch)

    def forward(self, batch, generator):
        if "group" not in batch:
            return super().forward(batch, generator)

        def read(ids, mask):
            return mean_pool(
                self.generator.encoder(ids, attention_mask=mask).last_hidden_state, mask
            )

        sides = [
            read(batch[f"{side}input_ids"], batch[f"{side}attention_mask"])
            for side in ("", "partner_")
        ]
        return {"contrast": info_nce(*sides)[0]}


def batches(s, data):
    return make_batches(s, data, s.batch_tokens, s.batch_tokens, pair_form="separate")


def measures(s, data):
    held_out = hold_out(data, held_out_spec(s, Masking()))
    return lambda model: held_out_metrics(model.measured, held_out)


def evaluate_run(s, data, trained, minutes):
    found = evaluate(trained.model.primary_network, data, minutes=minutes)
    return found.metrics(), found.measured


PHASE = Phase("contrast", (), Contrast, batches, measures)
RECIPE = Recipe(
    "98_contrast", PHASE, Settings, resolve, prepare_data, evaluate_run, lambda record: "a contrast"
)

"""Make the targets of membership audits. In: a finetune spec. Out: checkpoints `last` and `best`, training_log."""

from auditcore.jobs.context import Context
from auditcore.jobs.rows import load
from auditcore.spec import FinetuneSpec


def train(context: Context) -> None:
    """Run the stages rows and training; training continues at its last saved step."""
    from auditcore.datasets.roles import load_dataset
    from auditcore.lm.load import load_model
    from auditcore.training.finetune import finetune
    from auditcore.training.rows import select_rows, text_hashes

    spec = context.spec
    assert isinstance(spec, FinetuneSpec)
    dataset = load_dataset(spec.data, spec.prompt_template)
    if context.finished("training"):
        return
    model = load_model(spec.model)
    rows = load(context, dataset, model.tokenizer)
    train_rows, validation_rows = select_rows(rows.frame, spec)
    context.record(
        device=str(model.device),
        dtype=str(model.dtype),
        fingerprints={"model": model.fingerprint},
        counts={"train_rows": len(train_rows), "validation_rows": len(validation_rows)},
    )
    with context.stage("training") as on_progress:
        result = finetune(
            model,
            rows.encoded,
            train_rows,
            validation_rows,
            spec,
            context.run.path,
            on_step=lambda step, total, metrics: on_progress(step, total),
            example_ids=rows.frame["example_id"].tolist(),
            text_hashes=text_hashes(dataset.texts()),
        )
        context.run.write("training_log", result.log)
        context.record(
            data={"notes": [*context.run.manifest["data"]["notes"], *result.notes]},
            training={
                "steps": result.steps,
                "autocast": result.autocast,
                "best_step": result.best_step,
                "best_validation_loss": result.best_validation_loss,
                "last_validation_loss": result.last_validation_loss,
            },
        )

"""Fine-tuning. In: a language model and encoded rows. Out: checkpoints, and a record of what they were trained on."""

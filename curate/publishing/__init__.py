"""A finished run as a dataset on the Hugging Face Hub: tables, card, scan for what must not go out, push."""

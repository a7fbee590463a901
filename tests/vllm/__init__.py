"""vLLM for real, on the CPU, in a venv of its own: `make test-vllm`. Plain `pytest` does not come here."""

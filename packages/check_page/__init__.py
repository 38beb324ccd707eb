"""The checker as a page in the browser: ``trtllm_check`` on Pyodide, in one file that opens without a network."""

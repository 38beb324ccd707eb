"""Post-training quantization with nvidia-modelopt: formats, calibration, checkpoints, on the CPU or on a GPU."""

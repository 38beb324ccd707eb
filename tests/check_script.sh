#!/bin/bash
# The road of a 70B model, in the spellings that people use.
set -euo pipefail
MODEL=/models/Meta-Llama-3-70B-Instruct
export WORLD=8
IMAGE=nvcr.io/nvidia/tritonserver:24.08-trtllm-python-py3
git clone -b v0.12.0 https://github.com/NVIDIA/TensorRT-LLM.git && cd TensorRT-LLM
docker run --rm -it --gpus all --shm-size=2g \
  -v $PWD:/w -v /models:/models:ro \
  "$IMAGE" bash
python3 examples/quantization/quantize.py \
  --model_dir "$MODEL" \ *
  --qformat fp8 --kv_cache_dtype=fp8 \**
  --output_dir /w/ckpt/ \
  --tp_size ${WORLD}
python3 examples/llama/convert_checkpoint.py --model_dir $MODEL --output_dir /w/bf16 --tp_size $WORLD

if [ ! -d /w/engine ]; then
  trtllm-build --checkpoint_dir /w/bf16 --output_dir /w/engine-bf16
  trtllm-build --checkpoint_dir /w/ckpt \
    --output_dir /w/engine \
    --use_paged_context_fmha enable 2>&1 | tee build.log
fi
mpirun -n $WORLD --allow-run-as-root python3 examples/run.py \
  --engine_dir /w/engine --tokenizer_dir $MODEL \
  --input_text "What isn't FP8?" --max_output_len 20

for name in preprocessing postprocessing; do
  python3 tools/fill_template.py -i repo/$name/config.pbtxt "tokenizer_dir:$MODEL,triton_max_batch_size:64"
done
python3 tools/fill_template.py -i repo/tensorrt_llm/config.pbtxt engine_dir:/w/engine,decoupled_mode:true
python3 scripts/launch_triton_server.py --world_size $WORLD --model_repo repo
exit
curl -X POST http://localhost:8000/v2/models/ensemble/generate -d '{
  "text_input": "What is FP8?",
  "max_new_tokens": 20
}'
cat > serving.properties <<EOF
engine=MPI
option.model_id=$MODEL
option.rolling_batch=trtllm
EOF
docker run -e OPTION_QUANTIZE=fp8 -e HF_MODEL_ID=meta-llama/Meta-Llama-3-70B-Instruct \
  763104351884.dkr.ecr.us-east-1.amazonaws.com/djl-inference:0.33.0-tensorrtllm0.21.0-cu128

#!/usr/bin/env bash
# Measures the main CPU figures of docs/performance.md on this machine, which must be idle meanwhile.
# DATA names the folder with text/ and tokenizers/ (default ../shared/data); without it, tokenizers are left out.
#   bench/run_cpu.sh [PYTHON_WITH_TRANSFORMERS] | tee bench/results/<machine>/$(date +%F).txt
set -euo pipefail
cd "$(dirname "$0")/.."
skiff=build/cpu/skiff
cmake --build build/cpu --target bench_ops bench_quantized bench_prompts bench_decodes bench_biases >/dev/null
cpu=$(grep -m1 'model name' /proc/cpuinfo | cut -d: -f2-)
echo "# $(date +%F), $(nproc) cores, $cpu, load $(cut -d' ' -f1 /proc/loadavg)"
echo "## operations"
build/cpu/bench/bench_ops
echo "## products with quantized weights"
build/cpu/bench/bench_quantized
echo "## a layer of a prompt"
build/cpu/bench/bench_prompts
echo "## a step of eight decodes"
build/cpu/bench/bench_decodes
echo "## what a bias for every token costs"
build/cpu/bench/bench_biases
for model in models/demo bench/configs/ernie-4.5-0.3b bench/configs/qwen2.5-0.5b; do
  [ -f $model/model.safetensors ] && format=auto || format=dummy
  for dtype in bfloat16 float32; do
    echo "## skiff bench latency $model --dtype $dtype --load-format $format --input-len 256 --output-len 32"
    $skiff bench latency $model --dtype $dtype --load-format $format --input-len 256 --output-len 32 2>/dev/null
    if [ $# -gt 0 ] && [ $format = dummy ]; then
      echo "## bench/peers/transformers_latency.py $model 256 32 $dtype"
      "$1" bench/peers/transformers_latency.py $model 256 32 $dtype 2>/dev/null
    fi
  done
done
for model in models/demo bench/configs/ernie-4.5-0.3b; do
  [ -f $model/model.safetensors ] && format=auto || format=dummy
  echo "## skiff bench throughput $model --load-format $format --input-len 256 --output-len 32 --num-prompts 16"
  $skiff bench throughput $model --load-format $format --input-len 256 --output-len 32 --num-prompts 16 2>/dev/null
done
if [ -d "${DATA:-../shared/data}/tokenizers" ]; then
  cmake --build build/cpu --target bench_tokenizer >/dev/null
  echo "## bench_tokenizer"
  build/cpu/bench/bench_tokenizer "${DATA:-../shared/data}" src
  if [ $# -gt 0 ]; then "$1" bench/peers/hf_tokenizers.py "${DATA:-../shared/data}" src; fi
fi

#!/bin/sh
# Builds the whole demo model from nothing: held-out set, tokenizer, corpus, model, draft layer, metrics.
# Needs a GPU and Python with torch, transformers, tokenizers, safetensors and jinja2.
set -e
cd "$(dirname "$0")"
python3 corpus.py --heldout
python3 tokenizer.py
python3 train.py "$@"

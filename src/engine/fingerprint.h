// engine/fingerprint.h -- what keys and values depend on besides the tokens.
#pragma once
#include <string>
#include <string_view>

#include "engine/resolved.h"
#include "kv/block_key.h"
#include "peer/wire.h"

namespace skiff::engine {

// Identifies the code that computes keys and values. Two different values may give different bits.
struct Arithmetic {
  std::string backend;  // Ops::arithmetic()
  std::string build;    // sources_digest()
};

// SHA-256 of the arithmetic, the engine's version, precision, block size, the model's
// configuration, and its weights by name, size, time of change and samples of their bytes (a page
// in every MiB). Weights that differ only in bytes that were not sampled, with equal times of
// change, have the same fingerprint. Throws LoadError.
kv::BlockKey fingerprint_of(const Resolved& resolved, const Arithmetic& arithmetic);

// What two instances must agree on to use each other's blocks. Unlike the fingerprint above it
// leaves out when files were changed, because a copy of a model is as good; weights of equal names
// and sizes that differ only in bytes that were not sampled are not told apart. It leaves out among
// how many ranks model and drafter are cut, too: blocks are exchanged in the form of one rank
// (model/block_form.h), of `block_bytes`. Throws LoadError.
peer::Facts shared_facts(const Resolved& resolved, const Arithmetic& arithmetic,
                         size_t block_bytes);
kv::BlockKey fingerprint_of(const peer::Facts& facts);
// Returns the fingerprint of the facts and of the cuts of model and drafter, on which the layout of
// a block depends, though not its name.
kv::BlockKey fingerprint_of(peer::Facts facts, const Resolved& resolved);

// SHA-256 in hexadecimal.
std::string digest_of(std::string_view bytes);

// SHA-256 of the sources, the compilers and their flags that decide what a kernel computes: two
// builds of one version differ in it where their arithmetic may. Made by cmake/sources_digest.cmake
// in every build.
std::string_view sources_digest();

}  // namespace skiff::engine

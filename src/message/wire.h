// message/wire.h -- StepPlan and StepResult as bytes, between the rank that plans and ranks in
// other processes.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "message/step.h"

namespace skiff {

// A message: a header of 16 bytes (magic, version, kind, bytes that follow) and a body of little-
// endian numbers and counted lists. A value has one encoding: a value that was read is written as
// the same bytes again. Processes of one group run the same build: another version is refused.
constexpr uint16_t kWireVersion = 6;
constexpr size_t kWireHeader = 16;
constexpr size_t kMaxWireBody = size_t{1} << 30;

// Both append to `out`, and CHECK what the parsers refuse: a plan whose lists do not fit each other
// is a bug here.
void write_plan(const StepPlan& plan, std::vector<std::byte>& out);
void write_result(const StepResult& result, std::vector<std::byte>& out);

// Returns the number of bytes that follow a header, so that a stream can be cut into messages;
// kInvalid if it is no header, or announces more than kMaxWireBody bytes.
Result<size_t> wire_body(std::span<const std::byte> header);

// Both read one whole message of untrusted bytes, with nothing behind it. They return kInvalid with
// the reason and the offset if the message is cut, malformed or of another version, or if the
// plan's parts do not fit each other (rows and spans, drafts and rows, pages and spans). The memory
// they allocate is bounded by the length of `message`. Numbers that only the receiver can judge
// (slots, blocks, tokens within its limits) are left to it, and so are constraints: each comes as a
// SentConstraint, of whose source the receiver makes one before it opens the slot.
Result<StepPlan> read_plan(std::span<const std::byte> message);
Result<StepResult> read_result(std::span<const std::byte> message);

}  // namespace skiff

#include "message/wire.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace skiff {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr uint32_t kMagic = 0x464b5353;
enum class Kind : uint16_t { kPlan = 1, kResult = 2 };

struct Header {
  uint32_t magic = kMagic;
  uint16_t version = kWireVersion;
  uint16_t kind = 0;
  uint64_t body = 0;
};
static_assert(sizeof(Header) == kWireHeader);

template <class T>
constexpr bool is_number = (std::is_arithmetic_v<T> && !std::is_same_v<T, bool>);

// Writes the format that Reader reads.
class Writer {
 public:
  explicit Writer(std::vector<std::byte>& out) : out_(out) {}

  template <class T>
  requires is_number<T>
  void visit(const T& value) {
    const auto* bytes = reinterpret_cast<const std::byte*>(&value);
    out_.insert(out_.end(), bytes, bytes + sizeof value);
  }
  void visit(const bool& value) { visit(static_cast<uint8_t>(value)); }
  void visit(const std::shared_ptr<const TokenConstraint>& constraint) {
    const std::string source = constraint ? constraint->source() : std::string();
    visit(std::vector<char>(source.begin(), source.end()));
  }
  template <class T>
  void visit(const std::vector<T>& list) {
    SKIFF_CHECK(list.size() <= std::numeric_limits<uint32_t>::max());
    visit(static_cast<uint32_t>(list.size()));
    if constexpr (is_number<T>) {
      const auto* bytes = reinterpret_cast<const std::byte*>(list.data());
      out_.insert(out_.end(), bytes, bytes + list.size() * sizeof(T));
    } else {
      for (const T& item : list) visit_fields(*this, item);
    }
  }
  template <class T>
  void visit(const SharedList<T>& list) {
    visit(list.all());
  }

 private:
  std::vector<std::byte>& out_;
};

// After the first error every value read is zero or empty, and the error stays.
class Reader {
 public:
  Reader(std::span<const std::byte> bytes, size_t at) : bytes_(bytes), at_(at) {}

  template <class T>
  requires is_number<T>
  void visit(T& value) {
    if (!take(&value, sizeof value)) value = {};
  }
  void visit(bool& value) {
    uint8_t byte = 0;
    visit(byte);
    if (byte > 1) fail("a flag is neither 0 nor 1");
    value = byte == 1;
  }
  void visit(std::shared_ptr<const TokenConstraint>& constraint) {
    std::vector<char> source;
    visit(source);
    constraint.reset();
    if (!source.empty())
      constraint = std::make_shared<SentConstraint>(std::string(source.begin(), source.end()));
  }
  template <class T>
  void visit(std::vector<T>& list) {
    const uint32_t count = counted(kLeast<T>);
    if constexpr (is_number<T>) {
      list.resize(count);
      if (count > 0) take(list.data(), count * sizeof(T));
    } else {
      // Few bytes may stand for items that take much memory, so the list grows as items are read.
      for (uint32_t i = 0; i < count && ok(); ++i) visit_fields(*this, list.emplace_back());
    }
  }
  template <class T>
  void visit(SharedList<T>& list) {
    std::vector<T> items;
    visit(items);
    list = SharedList<T>(std::move(items));
  }
  void fail(std::string_view why) {
    if (ok()) error_ = fmt::format("{} (before byte {})", why, at_);
    at_ = bytes_.size();
  }
  bool ok() const { return error_.empty(); }
  const std::string& error() const { return error_; }
  bool at_end() const { return at_ == bytes_.size(); }
  size_t at() const { return at_; }

 private:
  // The least number of bytes that an item takes.
  template <class T>
  static constexpr size_t kLeast = is_number<T> ? sizeof(T) : 4;

  bool take(void* to, size_t size) {
    if (bytes_.size() - at_ < size) {
      fail("the message ends early");
      return false;
    }
    std::memcpy(to, bytes_.data() + at_, size);
    at_ += size;
    return true;
  }
  uint32_t counted(size_t least) {
    uint32_t count = 0;
    visit(count);
    if (count <= (bytes_.size() - at_) / least) return count;
    fail("a list is longer than the message");
    return 0;
  }

  std::span<const std::byte> bytes_;
  size_t at_;
  std::string error_;
};

// Visits the fields in their order on the wire. V is Writer or Reader; T is const for Writer.
template <class V, class... T>
void fields(V& v, T&... field) {
  (v.visit(field), ...);
}

template <class V, class T>
void visit_pooling(V& v, T& pooling) {
  auto rows = static_cast<uint8_t>(pooling.rows);
  fields(v, rows, pooling.logits, pooling.columns);
  if constexpr (!std::is_const_v<T>) {
    if (rows > Pooling::kMean) v.fail("a way of pooling that is not known");
    pooling.rows = static_cast<Pooling::Rows>(std::min<uint8_t>(rows, Pooling::kMean));
  }
}

template <class V, class T>
void visit_fields(V& v, T& x) {
  using U = std::remove_const_t<T>;
  if constexpr (std::is_same_v<U, Span>) {
    fields(v, x.seq, x.slot, x.begin, x.count, x.draft, x.sample, x.prompt_logprobs, x.next, x.pool,
           x.pool_logits, x.draft_logprobs, x.after_drafts);
  } else if constexpr (std::is_same_v<U, BlockCopy>) {
    fields(v, x.block, x.host);
  } else if constexpr (std::is_same_v<U, SamplingParams>) {
    fields(v, x.temperature, x.top_p, x.min_p, x.top_k, x.repetition, x.presence, x.frequency,
           x.seed, x.logprobs, x.prompt_logprobs, x.draft_logprobs, x.min_tokens, x.logit_bias,
           x.bad_words, x.constraint);
  } else if constexpr (std::is_same_v<U, std::pair<Token, float>>) {
    fields(v, x.first, x.second);
  } else if constexpr (std::is_same_v<U, OpenSlot>) {
    v.visit(x.slot);
    visit_fields(v, x.params);
    fields(v, x.history, x.prompt_len, x.written, x.stop_tokens);
    visit_pooling(v, x.pooling);
  } else if constexpr (std::is_same_v<U, TokenLogprob>) {
    fields(v, x.token, x.logprob);
  } else if constexpr (std::is_same_v<U, PositionLogprobs>) {
    visit_fields(v, x.chosen);
    fields(v, x.rank, x.top);
  } else if constexpr (std::is_same_v<U, StepPlan>) {
    fields(v, x.step, x.saves, x.loads, x.spans, x.tokens, x.pages, x.page_start, x.opened,
           x.drafts, x.chained);
  } else if constexpr (std::is_same_v<U, StepResult>) {
    fields(v, x.step, x.seconds, x.copy_seconds, x.tokens, x.drafts, x.logprobs, x.prompt_logprobs,
           x.pooled, x.draft_logprobs);
  } else {
    v.visit(x);  // each element is itself a list
  }
}

bool fits(const Span& s) {
  return s.slot >= 0 && s.begin >= 0 && s.count >= 1 && s.draft >= 0 && s.draft < s.count &&
         (s.sample || s.draft == 0) && !(s.sample && s.pool) && (s.pool || !s.pool_logits) &&
         (!s.after_drafts || (s.sample && s.count == 1 + s.draft)) &&
         s.count <= std::numeric_limits<int>::max() - s.begin;
}

// Returns why the plan's parts do not fit each other; empty if they do.
std::string_view misfit(const StepPlan& plan) {
  uint64_t rows = 0;
  for (const Span& span : plan.spans) {
    if (!fits(span)) return "a span's rows or drafts make no sense";
    rows += static_cast<uint64_t>(span.count);
  }
  if (rows != plan.tokens.size()) return "the spans have another number of rows than tokens";
  const auto& start = plan.page_start;
  if (start.size() != plan.spans.size() + 1 || start.front() != 0 ||
      !std::ranges::is_sorted(start) || static_cast<size_t>(start.back()) != plan.pages.size())
    return "page_start does not cut the pages into one table for each span";
  const auto bad = [](const OpenSlot& open) {
    return open.slot < 0 || open.prompt_len < 0 ||
           static_cast<size_t>(open.prompt_len) > open.history.size() || open.written < 0 ||
           open.written > open.prompt_len;
  };
  if (std::ranges::any_of(plan.opened, bad)) return "an opened slot's prompt is not in its history";
  const auto decodes = [](const Span& span) { return span.sample && span.count == 1 + span.draft; };
  if (plan.chained && !(plan.drafts && std::ranges::all_of(plan.spans, decodes)))
    return "a chained step does more than to decode";
  return {};
}

std::string_view misfit(const StepResult& result) {
  const size_t spans = result.tokens.size();
  const bool parallel = result.drafts.size() == spans && result.logprobs.size() == spans &&
                        result.prompt_logprobs.size() == spans &&
                        (result.pooled.empty() || result.pooled.size() == spans) &&
                        (result.draft_logprobs.empty() || result.draft_logprobs.size() == spans);
  return parallel ? "" : "lists of a result are not of one length";
}

template <class T>
void write_message(Kind kind, const T& value, std::vector<std::byte>& out) {
  SKIFF_CHECK(misfit(value).empty(), "step {}: {}", value.step, misfit(value));
  const size_t begin = out.size();
  out.resize(begin + kWireHeader);
  Writer writer(out);
  visit_fields(writer, value);
  const Header header{.kind = static_cast<uint16_t>(kind),
                      .body = out.size() - begin - kWireHeader};
  SKIFF_CHECK(header.body <= kMaxWireBody, "a message of {} bytes", header.body);
  std::memcpy(out.data() + begin, &header, kWireHeader);
}

Error invalid(std::string_view why) {
  return {.code = Code::kInvalid, .what = fmt::format("not a step message: {}", why)};
}

Result<Header> read_header(std::span<const std::byte> bytes) {
  Header header;
  if (bytes.size() < kWireHeader) return invalid("its header is cut");
  std::memcpy(&header, bytes.data(), kWireHeader);
  if (header.magic != kMagic) return invalid("it begins with other bytes");
  if (header.version != kWireVersion)
    return invalid(fmt::format("it has version {}, this build {}", header.version, kWireVersion));
  if (header.body > kMaxWireBody)
    return invalid(fmt::format("{} bytes are more than {}", header.body, kMaxWireBody));
  return header;
}

template <class T>
Result<T> read_message(Kind kind, std::span<const std::byte> message) {
  const Result<Header> header = read_header(message);
  if (!header) return header.error();
  if (header->kind != static_cast<uint16_t>(kind))
    return invalid(fmt::format("it is of kind {}", header->kind));
  if (header->body != message.size() - kWireHeader)
    return invalid(fmt::format("{} bytes follow its header instead of {}",
                               message.size() - kWireHeader, header->body));
  T value;
  Reader reader(message, kWireHeader);
  visit_fields(reader, value);
  if (reader.ok() && !reader.at_end()) reader.fail("bytes follow the message");
  if (!reader.ok()) return invalid(reader.error());
  if (const std::string_view why = misfit(value); !why.empty()) return invalid(why);
  return value;
}

}  // namespace

void write_plan(const StepPlan& plan, std::vector<std::byte>& out) {
  write_message(Kind::kPlan, plan, out);
}
void write_result(const StepResult& result, std::vector<std::byte>& out) {
  write_message(Kind::kResult, result, out);
}

Result<size_t> wire_body(std::span<const std::byte> header) {
  const Result<Header> read = read_header(header);
  if (!read) return read.error();
  return static_cast<size_t>(read->body);
}

Result<StepPlan> read_plan(std::span<const std::byte> message) {
  return read_message<StepPlan>(Kind::kPlan, message);
}
Result<StepResult> read_result(std::span<const std::byte> message) {
  return read_message<StepResult>(Kind::kResult, message);
}

}  // namespace skiff

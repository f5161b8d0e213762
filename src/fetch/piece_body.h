// fetch/piece_body.h -- the body of an answer for Beast's parser, taken out piece by piece.
// Private to the room.
#pragma once
#include <boost/beast/core/buffers_range.hpp>
#include <boost/beast/http/message.hpp>
#include <boost/optional/optional.hpp>
#include <cstdint>
#include <string>

namespace skiff::fetch {

// Beast's own string_body reserves memory for all that Content-Length says before the first byte is
// read, which fails for a file larger than the memory.
struct PieceBody {
  using value_type = std::string;
  class reader {
   public:
    template <bool kRequest, class Fields>
    reader(boost::beast::http::header<kRequest, Fields>&, value_type& piece) : piece_(piece) {}
    void init(const boost::optional<uint64_t>&, boost::system::error_code& error) { error = {}; }
    template <class Buffers>
    size_t put(const Buffers& buffers, boost::system::error_code& error) {
      error = {};
      const size_t before = piece_.size();
      for (const auto buffer : boost::beast::buffers_range_ref(buffers))
        piece_.append(static_cast<const char*>(buffer.data()), buffer.size());
      return piece_.size() - before;
    }
    void finish(boost::system::error_code& error) { error = {}; }

   private:
    value_type& piece_;
  };
};

}  // namespace skiff::fetch

// The C header from C++20: objects that free themselves, and statuses as exceptions, in a few lines.
//
//   c++ -std=c++20 cplusplus.cpp $(pkg-config --cflags --libs recurve) -o cplusplus
#include <recurve.h>

#include <cstdio>
#include <memory>
#include <stdexcept>
#include <utility>
#include <vector>

namespace recurve {

inline void check(rcv_status status) {
    if (status != RCV_OK) throw std::runtime_error(rcv_message());
}

template <auto Free> struct deleter {
    template <class Object> void operator()(Object *object) const { Free(object); }
};
using context = std::unique_ptr<rcv_context, deleter<rcv_context_free>>;
using cell = std::unique_ptr<rcv_cell, deleter<rcv_cell_free>>;
using net = std::unique_ptr<rcv_net, deleter<rcv_net_free>>;
using model = std::unique_ptr<rcv_model, deleter<rcv_model_free>>;
using stream = std::unique_ptr<rcv_stream, deleter<rcv_stream_free>>;

// make<cell>(rcv_cell_open, context.get(), "gru"): calls a function whose last argument is where the new object goes.
template <class Holder, class Create, class... Arguments> Holder make(Create create, Arguments &&...arguments) {
    typename Holder::pointer object = nullptr;
    check(create(std::forward<Arguments>(arguments)..., &object));
    return Holder(object);
}

} // namespace recurve

int main() try {
    constexpr int input = 4, hidden = 16, steps = 8;

    // Declared in the order of creation: they are freed in the reverse order, the context last.
    auto context = recurve::make<recurve::context>(rcv_context_new, nullptr);
    auto cell = recurve::make<recurve::cell>(rcv_cell_open, context.get(), "gru");
    const rcv_net_options sizes = RCV_INIT(rcv_net_options, .input = input, .hidden = hidden, .layers = 2);
    auto net = recurve::make<recurve::net>(rcv_net_new, cell.get(), &sizes);
    auto model = recurve::make<recurve::model>(rcv_model_new, net.get(), RCV_FLOAT32, 1);
    const rcv_stream_options options = RCV_INIT(rcv_stream_options, .effort = RCV_ESTIMATE);
    auto stream = recurve::make<recurve::stream>(rcv_stream_new_model, model.get(), &options);

    std::vector<float> frame(input), y(hidden);
    for (int t = 0; t < steps; t++) {
        frame.assign(input, 0.1f * static_cast<float>(t));
        recurve::check(rcv_stream_step(stream.get(), frame.data(), 1, y.data()));
        std::printf("step %d: y[0] %9.6f\n", t, static_cast<double>(y[0]));
    }

    // A failure is an exception with the library's sentence.
    try {
        recurve::make<recurve::cell>(rcv_cell_open, context.get(), "no such cell");
    } catch (const std::runtime_error &error) {
        std::printf("expected: %s\n", error.what());
        return 0;
    }
    return 1;
} catch (const std::exception &error) {
    std::fprintf(stderr, "cplusplus: %s\n", error.what());
    return 1;
}

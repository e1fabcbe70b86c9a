// The C interface from C++: the header compiles there, and its handles fit smart pointers. Usage: raii URI DIRECTORY
#include <engineswap.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

namespace {

engineswap_error error;

void check(bool good, const char *what) {
    if (good)
        return;
    std::fprintf(stderr, "%s: %s\n", what, error.message);
    std::exit(1);
}

template <auto Close>
struct Closer {
    template <class T>
    void operator()(T *handle) const {
        Close(handle);
    }
};
void close_queue(engineswap_queue *queue) {
    check(engineswap_queue_close(queue, &error) == ENGINESWAP_OK, "close");
}

using Engine = std::unique_ptr<engineswap_engine, Closer<engineswap_close>>;
using File = std::unique_ptr<engineswap_file, Closer<engineswap_file_close>>;
using Queue = std::unique_ptr<engineswap_queue, Closer<close_queue>>;

} // namespace

int main(int argc, char **argv) {
    if (argc != 3)
        return 2;
    engineswap_engine *raw_engine = nullptr;
    const auto opened = engineswap_open(argv[1], &raw_engine, &error);
    if (opened == ENGINESWAP_UNSUPPORTED)
        return std::printf("skipped: %s\n", error.message), 0;
    check(opened == ENGINESWAP_OK, "open");
    Engine engine(raw_engine);

    const std::string path = std::string(argv[2]) + "/cpp";
    engineswap_file *raw_file = nullptr;
    const auto how = ENGINESWAP_READ | ENGINESWAP_WRITE | ENGINESWAP_CREATE | ENGINESWAP_DIRECT_PREFER;
    check(engineswap_file_open(engine.get(), path.c_str(), how, &raw_file, &error) == ENGINESWAP_OK, "open file");
    File file(raw_file);

    constexpr std::size_t page = 4096, pages = 64;
    std::vector<char> data(page * pages), back(page * pages);
    for (std::size_t i = 0; i < data.size(); i++)
        data[i] = static_cast<char>(i * 31 % 253);

    engineswap_queue *raw_queue = nullptr;
    check(engineswap_queue_open(engine.get(), 16, 0, &raw_queue, &error) == ENGINESWAP_OK, "queue");
    Queue queue(raw_queue);
    for (auto kind : {ENGINESWAP_OP_WRITE, ENGINESWAP_OP_READ}) {
        auto &memory = kind == ENGINESWAP_OP_WRITE ? data : back;
        std::size_t pushed = 0, taken = 0;
        while (taken < pages) {
            engineswap_op op{};
            op.kind = kind;
            op.file = file.get();
            op.buffer = memory.data() + pushed * page;
            op.offset = pushed * page;
            op.len = page;
            if (pushed < pages && engineswap_queue_push(queue.get(), &op, nullptr) == ENGINESWAP_OK) {
                pushed++;
                continue;
            }
            check(engineswap_queue_wait(queue.get(), 1, &error) == ENGINESWAP_OK, "wait");
            engineswap_completion done;
            while (engineswap_queue_pop(queue.get(), &done, &error) == 1) {
                check(done.result == static_cast<int64_t>(page), "transfer");
                taken++;
            }
        }
    }
    check(data == back, "the bytes came back");
    std::puts("passed");
}

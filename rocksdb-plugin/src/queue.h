// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Queues of operations that go on after a call has returned: asynchronous reads, writes behind the writer.
//
// RocksDB may finish on one thread what another one has begun, so these queues are shared: any thread may call, and
// each waits for its own operations. An engine has a few of them, made when first needed and kept until it is closed;
// a thread always uses the same one, so that threads seldom meet and no ring belongs to a file.
#pragma once

#include <array>
#include <atomic>
#include <mutex>

#include <engineswap.h>

namespace engineswap {

class Queue {
  public:
    // Null if the system does not give one now: then things are done one by one.
    static Queue *Open(engineswap_engine *engine);
    // Waits for what is in flight.
    ~Queue();
    Queue(const Queue &) = delete;
    Queue &operator=(const Queue &) = delete;

    // Starts an operation. False if there is no room, or the queue is broken; nothing has happened then. `op.user` is
    // the operation's name: no other in flight has it.
    bool Start(const engineswap_op &op);
    // Asks the kernel to let go of an operation. It ends all the same, and is to be taken.
    void Cancel(uint64_t user);
    // Waits for an operation and takes its completion. The memory is the caller's again, unless the completion says
    // ENGINESWAP_BUFFER_HELD.
    engineswap_completion Take(uint64_t user);
    bool IsBroken() const { return broken_.load(std::memory_order_relaxed); }

  private:
    explicit Queue(engineswap_queue *handle) : handle_(handle) {}

    engineswap_queue *const handle_;
    std::atomic<bool> broken_{false};
};

class Queues {
  public:
    explicit Queues(engineswap_engine *engine) : engine_(engine) {}
    ~Queues();
    Queues(const Queues &) = delete;
    Queues &operator=(const Queues &) = delete;

    // The calling thread's queue, or null. Lives as long as this.
    Queue *Mine();
    // Lets go of all of them without touching them: they are of another process.
    void Forget();

  private:
    static constexpr size_t kCount = 16;

    engineswap_engine *const engine_;
    std::array<std::atomic<Queue *>, kCount> queues_{};
    std::mutex mutex_; // of making one
};

} // namespace engineswap

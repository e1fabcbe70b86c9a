// SPDX-License-Identifier: MIT OR Apache-2.0

#include "queue.h"

#include <cstring>

namespace engineswap {

namespace {

// Enough for the windows of read-ahead of several iterators; no more than the engine's own option says.
constexpr uint32_t kDepth = 256;

// Threads are numbered as they come. Not a hash: two of few threads should not share a queue.
size_t ThreadNumber() {
    static std::atomic<size_t> next{0};
    thread_local const size_t mine = next.fetch_add(1, std::memory_order_relaxed);
    return mine;
}

} // namespace

Queue *Queue::Open(engineswap_engine *engine) {
    engineswap_queue *handle = nullptr;
    if (engineswap_queue_open(engine, kDepth, ENGINESWAP_QUEUE_SHARED, &handle, nullptr) != ENGINESWAP_OK)
        return nullptr;
    return new Queue(handle);
}

Queue::~Queue() {
    engineswap_queue_close(handle_, nullptr);
}

bool Queue::Start(const engineswap_op &op) {
    if (engineswap_queue_push(handle_, &op, nullptr) != ENGINESWAP_OK)
        return false;
    // What was pushed has a completion even if the queue breaks now.
    if (engineswap_queue_submit(handle_, nullptr) == ENGINESWAP_QUEUE_BROKEN)
        broken_ = true;
    return true;
}

void Queue::Cancel(uint64_t user) {
    engineswap_queue_cancel(handle_, user, nullptr);
}

engineswap_completion Queue::Take(uint64_t user) {
    engineswap_completion done;
    const int32_t taken = engineswap_queue_take(handle_, user, &done, nullptr);
    if (taken == 1)
        return done;
    // It was in flight and is not to be had: the queue has failed, and nobody knows what the kernel still does.
    broken_ = true;
    memset(&done, 0, sizeof done);
    done.user = user;
    done.result = ENGINESWAP_QUEUE_BROKEN;
    done.flags = ENGINESWAP_BUFFER_HELD;
    return done;
}

Queues::~Queues() {
    for (auto &queue : queues_)
        delete queue.load();
}

void Queues::Forget() {
    for (auto &queue : queues_)
        queue.store(nullptr);
}

Queue *Queues::Mine() {
    std::atomic<Queue *> &place = queues_[ThreadNumber() % kCount];
    Queue *queue = place.load(std::memory_order_acquire);
    if (queue == nullptr) {
        const std::lock_guard<std::mutex> lock(mutex_);
        queue = place.load(std::memory_order_acquire);
        if (queue == nullptr) {
            queue = Queue::Open(engine_);
            place.store(queue, std::memory_order_release);
        }
    }
    // A broken one stays, so that its operations can be taken; whoever wants a new operation does without.
    return queue != nullptr && queue->IsBroken() ? nullptr : queue;
}

} // namespace engineswap

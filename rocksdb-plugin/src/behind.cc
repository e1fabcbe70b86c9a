// SPDX-License-Identifier: MIT OR Apache-2.0

#include "behind.h"

#include <fcntl.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "status.h"

namespace engineswap {

namespace {

// Allocation ahead doubles up to this, so that a small file does not cost the journal much.
constexpr uint64_t kMostAhead = uint64_t{64} << 20;

} // namespace

WriteBehind::WriteBehind(const File &file, bool allocate, Purpose purpose)
    : file_(file), purpose_(purpose), allocate_(allocate) {}

WriteBehind::~WriteBehind() {
    const std::lock_guard<std::mutex> lock(mutex_);
    DrainLocked();
    for (Slot &slot : slots_)
        engineswap_buffer_free(slot.buffer);
}

rdb::IOStatus WriteBehind::Write(const rdb::Slice &data, uint64_t offset) {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (size_t at = 0; at < data.size() && first_error_.ok(); at += kSlotBytes)
        first_error_ = Piece(data.data() + at, std::min(kSlotBytes, data.size() - at), offset + at);
    return first_error_;
}

rdb::IOStatus WriteBehind::Piece(const char *data, size_t len, uint64_t offset) {
    const auto overlaps = [&](const Slot &s) {
        return s.queue != nullptr && offset < s.offset + s.len && s.offset < offset + len;
    };
    // RocksDB writes the last, partial block of a file again when there is more to put into it.
    for (Slot &slot : slots_)
        if (overlaps(slot))
            Finish(&slot);
    AllocateAhead(offset + len);
    Slot *slot = FreeSlot(len);
    if (!first_error_.ok())
        return first_error_;
    Queue *queue = file_.engine()->IsOurs() ? file_.engine()->queues()->Mine() : nullptr;
    if (queue == nullptr || slot == nullptr)
        return file_.Write(offset, rdb::Slice(data, len), purpose_);
    memcpy(slot->buffer, data, len);
    slot->offset = offset;
    slot->len = len;
    engineswap_op op;
    memset(&op, 0, sizeof op);
    op.kind = ENGINESWAP_OP_WRITE;
    op.file = file_.handle();
    op.buffer = slot->buffer;
    op.offset = offset;
    op.len = len;
    op.user = reinterpret_cast<uintptr_t>(slot);
    op.purpose = purpose_;
    if (!queue->Start(op))
        return file_.Write(offset, rdb::Slice(data, len), purpose_);
    slot->queue = queue;
    return rdb::IOStatus::OK();
}

// The slot used longest ago, its write waited for. Null without memory.
WriteBehind::Slot *WriteBehind::FreeSlot(size_t len) {
    Slot *slot = &slots_[next_];
    next_ = (next_ + 1) % kSlots;
    Finish(slot);
    if (slot->capacity < len) {
        engineswap_buffer_free(slot->buffer);
        slot->capacity = 0;
        slot->buffer = static_cast<char *>(engineswap_buffer_alloc(len));
        if (slot->buffer == nullptr)
            return nullptr;
        slot->capacity = len;
    }
    return slot;
}

void WriteBehind::Finish(Slot *slot) {
    if (slot->queue == nullptr)
        return;
    rdb::IOStatus s;
    if (!file_.engine()->IsOurs()) {
        // The write is the parent's; the buffer here is only a copy of its memory.
        s = rdb::IOStatus::IOError("the file was being written at fork()", file_.path());
    } else {
        const engineswap_completion done = slot->queue->Take(reinterpret_cast<uintptr_t>(slot));
        s = StatusOf(done, "write " + std::to_string(slot->len) + " bytes at offset " + std::to_string(slot->offset) +
                               " of " + file_.path());
        if (done.flags & ENGINESWAP_BUFFER_HELD) {
            // Left to the kernel for good.
            slot->buffer = nullptr;
            slot->capacity = 0;
        }
    }
    slot->queue = nullptr;
    if (first_error_.ok())
        first_error_ = s;
}

void WriteBehind::DrainLocked() {
    for (size_t i = 0; i < kSlots; i++)
        Finish(&slots_[(next_ + i) % kSlots]);
}

rdb::IOStatus WriteBehind::Drain() {
    const std::lock_guard<std::mutex> lock(mutex_);
    DrainLocked();
    return first_error_;
}

rdb::IOStatus WriteBehind::Check() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return first_error_;
}

void WriteBehind::Allocated(uint64_t offset, uint64_t len) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (offset <= allocated_)
        allocated_ = std::max(allocated_, offset + len);
    longer_ = true;
}

void WriteBehind::Truncated(uint64_t size) {
    const std::lock_guard<std::mutex> lock(mutex_);
    allocated_ = size;
    longer_ = false;
}

bool WriteBehind::IsLonger() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return longer_;
}

void WriteBehind::AllocateAhead(uint64_t end) {
    if (!allocate_ || end <= allocated_)
        return;
    const uint64_t from = allocated_, to = end + ahead_;
    // Also if it fails: what was found before the disk was full may stay.
    longer_ = true;
    // A file system that cannot, or is nearly full, can still write.
    if (fallocate(file_.fd(), 0, static_cast<off_t>(from), static_cast<off_t>(to - from)) != 0) {
        allocate_ = false;
        return;
    }
    allocated_ = to;
    ahead_ = std::min(2 * ahead_, kMostAhead);
}

} // namespace engineswap

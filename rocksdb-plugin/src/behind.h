// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Direct writes that go on behind the writer.
//
// A direct write has no page cache between it and the device: a thread that waits for each has the device idle while it
// prepares the next one. Here a write is copied into one of a few aligned buffers of the file and is in flight when the
// call returns. Memory is bounded: at most kSlots buffers of kSlotBytes per open file, given back by the destructor.
//
// The first error stays: every later call returns it. Overlapping writes keep their order, because the later one waits
// for the earlier. Calls may come from several threads, one waits for the other.
#pragma once

#include <array>
#include <mutex>

#include "engine.h"
#include "queue.h"
#include "version.h"

namespace engineswap {

class WriteBehind {
  public:
    // `allocate`: the file may be allocated ahead of the writes. Then it is longer than what was written, until
    // somebody truncates it: the kernel does direct writes one at a time that make a file longer.
    WriteBehind(const File &file, bool allocate, Purpose purpose);
    // Waits for what is in flight.
    ~WriteBehind();
    WriteBehind(const WriteBehind &) = delete;
    WriteBehind &operator=(const WriteBehind &) = delete;

    // Offset and length are aligned as the file asks. OK means that the write was taken, not that it was done.
    rdb::IOStatus Write(const rdb::Slice &data, uint64_t offset);
    // Waits for everything, and returns the first error that there ever was.
    rdb::IOStatus Drain();
    // The first error so far; does not wait.
    rdb::IOStatus Check();
    // How long the file has been made: `len` bytes from `offset` are allocated.
    void Allocated(uint64_t offset, uint64_t len);
    // The file has been cut to this, or grown; nothing is allocated beyond.
    void Truncated(uint64_t size);
    // Whether the file may be longer than what was written.
    bool IsLonger();

  private:
    static constexpr size_t kSlots = 6;
    static constexpr size_t kSlotBytes = size_t{1} << 20;

    struct Slot {
        char *buffer = nullptr;
        size_t capacity = 0;
        uint64_t offset = 0, len = 0;
        Queue *queue = nullptr; // where its write is in flight
    };

    rdb::IOStatus Piece(const char *data, size_t len, uint64_t offset);
    Slot *FreeSlot(size_t len);
    void Finish(Slot *slot);
    void DrainLocked();
    void AllocateAhead(uint64_t end);

    const File &file_;
    const Purpose purpose_;
    std::mutex mutex_; // of everything below
    bool allocate_;
    uint64_t allocated_ = 0;
    uint64_t ahead_ = uint64_t{4} << 20;
    bool longer_ = false;
    size_t next_ = 0; // the slot that is used next, which is the one used longest ago
    std::array<Slot, kSlots> slots_;
    rdb::IOStatus first_error_;
};

} // namespace engineswap

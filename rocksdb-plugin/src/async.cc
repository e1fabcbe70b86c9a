// SPDX-License-Identifier: MIT OR Apache-2.0

#include "async.h"

#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>

#include "queue.h"
#include "status.h"

namespace engineswap {

namespace {

// What RocksDB holds as a handle.
class PendingRead {
  public:
    PendingRead(std::shared_ptr<File> file, const rdb::FSReadRequest &req, ReadAsyncCallback callback, void *arg)
        : file_(std::move(file)), callback_(std::move(callback)), arg_(arg) {
        req_.offset = req.offset;
        req_.len = req.len;
        req_.scratch = req.scratch;
    }

    ~PendingRead() {
        // RocksDB polls or aborts before it lets go. If somebody does not, the kernel must have done with the memory
        // first all the same.
        Cancel();
        Wait();
    }

    void Start() {
        Queue *queue = file_->engine()->IsOurs() ? file_->engine()->queues()->Mine() : nullptr;
        if (queue != nullptr) {
            engineswap_op op;
            memset(&op, 0, sizeof op);
            op.kind = ENGINESWAP_OP_READ;
            op.file = file_->handle();
            op.buffer = req_.scratch;
            op.offset = req_.offset;
            op.len = req_.len;
            op.user = Name();
            op.purpose = kTableReadAhead;
            if (queue->Start(op)) {
                queue_ = queue;
                return;
            }
        }
        req_.status = file_->Read(req_.offset, req_.len, &req_.result, req_.scratch, kTableReadAhead);
    }

    bool IsDelivered() const { return delivered_; }

    void Cancel() {
        if (queue_ != nullptr && file_->engine()->IsOurs())
            queue_->Cancel(Name());
    }

    // Until the memory is the caller's again.
    void Wait() {
        if (queue_ == nullptr)
            return;
        if (!file_->engine()->IsOurs()) {
            // The parent's read goes on in the parent's memory.
            req_.status = rdb::IOStatus::IOError("the read was begun before fork()", file_->path());
        } else {
            const engineswap_completion done = queue_->Take(Name());
            CheckMemory(done, *file_);
            if (done.result >= 0)
                req_.result = rdb::Slice(req_.scratch, static_cast<size_t>(done.result));
            else
                req_.status = StatusOf(done, "read " + std::to_string(req_.len) + " bytes ahead at offset " +
                                                 std::to_string(req_.offset) + " of " + file_->path());
        }
        queue_ = nullptr;
    }

    // The last thing that happens to it before it is deleted.
    void Deliver() {
        delivered_ = true;
        callback_(req_, arg_);
    }

    void DeliverAborted() {
        req_.status = rdb::IOStatus::Aborted();
        req_.result = rdb::Slice();
        Deliver();
    }

  private:
    uint64_t Name() const { return reinterpret_cast<uintptr_t>(this); }

    const std::shared_ptr<File> file_;
    const ReadAsyncCallback callback_;
    void *const arg_;
    rdb::FSReadRequest req_{};
    Queue *queue_ = nullptr; // where it is in flight
    bool delivered_ = false;
};

} // namespace

bool AsyncReadsAreAllowed() {
    static const bool allowed = [] {
        const char *forced = getenv("ENGINESWAP_ROCKSDB_ASYNC");
        return ENGINESWAP_ASYNC_SCANS_ARE_SOUND || (forced != nullptr && strcmp(forced, "1") == 0);
    }();
    return allowed;
}

rdb::IOStatus StartRead(const std::shared_ptr<File> &file, const rdb::FSReadRequest &req, ReadAsyncCallback callback,
                        void *arg, void **handle, rdb::IOHandleDeleter *deleter) {
    if (!AsyncReadsAreAllowed())
        return rdb::IOStatus::NotSupported("asynchronous reads with this version of RocksDB");
    auto *read = new PendingRead(file, req, std::move(callback), arg);
    read->Start();
    *handle = read;
    *deleter = [](void *h) { delete static_cast<PendingRead *>(h); };
    return rdb::IOStatus::OK();
}

rdb::IOStatus PollReads(const std::vector<void *> &handles) {
    for (void *const handle : handles) {
        auto *read = static_cast<PendingRead *>(handle);
        if (read == nullptr || read->IsDelivered())
            continue;
        read->Wait();
        read->Deliver();
    }
    return rdb::IOStatus::OK();
}

rdb::IOStatus AbortReads(const std::vector<void *> &handles) {
    // All are taken back before the first is waited for.
    for (void *const handle : handles)
        if (handle != nullptr && !static_cast<PendingRead *>(handle)->IsDelivered())
            static_cast<PendingRead *>(handle)->Cancel();
    for (void *const handle : handles) {
        auto *read = static_cast<PendingRead *>(handle);
        if (read == nullptr || read->IsDelivered())
            continue;
        read->Wait();
        read->DeliverAborted();
    }
    return rdb::IOStatus::OK();
}

} // namespace engineswap

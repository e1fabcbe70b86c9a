// SPDX-License-Identifier: MIT OR Apache-2.0

#include "status.h"

#include <cerrno>
#include <cstring>

namespace engineswap {

namespace {

std::string Describe(int err) {
    char text[128];
    // The GNU strerror_r, which may return a static string instead of filling `text`.
    return strerror_r(err, text, sizeof text);
}

// What the kernel said, as RocksDB's own file system has it.
rdb::IOStatus OfErrno(int err, const std::string &message) {
    switch (err) {
    case ENOSPC:
    case EDQUOT: {
        // RocksDB waits for space, then resumes by itself. A quota is space too; the stock file system reports it
        // as any other error, which stops the database.
        rdb::IOStatus s = rdb::IOStatus::NoSpace(message);
        s.SetRetryable(true);
        return s;
    }
    case ESTALE:
        return rdb::IOStatus::IOError(rdb::IOStatus::kStaleFile);
    case ENOENT:
        return rdb::IOStatus::PathNotFound(message);
    default:
        // Among them a failed sync, final for its file, and a broken queue. None is retryable: what the kernel has
        // thrown away does not come back by asking again.
        return rdb::IOStatus::IOError(message);
    }
}

rdb::IOStatus OfCode(int32_t code, const std::string &message) {
    switch (code) {
    case ENGINESWAP_NOT_FOUND:
        return rdb::IOStatus::PathNotFound(message);
    case ENGINESWAP_UNSUPPORTED:
        return rdb::IOStatus::NotSupported(message);
    case ENGINESWAP_INVALID_ARGUMENT:
        return rdb::IOStatus::InvalidArgument(message);
    default:
        return rdb::IOStatus::IOError(message);
    }
}

rdb::IOStatus Make(int32_t code, int err, const std::string &message) {
    return err != 0 ? OfErrno(err, message) : OfCode(code, message);
}

} // namespace

rdb::IOStatus StatusOf(const engineswap_error &err) {
    if (err.code >= 0)
        return rdb::IOStatus::OK();
    return Make(err.code, err.os_errno, err.message);
}

rdb::IOStatus StatusOfEngine(const engineswap_error &err) {
    return OfCode(err.code, err.message);
}

rdb::IOStatus StatusOf(const engineswap_completion &done, const std::string &what) {
    if (done.result >= 0)
        return rdb::IOStatus::OK();
    const auto code = static_cast<int32_t>(done.result);
    const std::string cause = done.os_errno ? Describe(done.os_errno) : engineswap_code_name(code);
    return Make(code, done.os_errno, what + ": " + cause);
}

rdb::IOStatus StatusOfErrno(int err, const std::string &what) {
    return OfErrno(err, what + ": " + Describe(err));
}

} // namespace engineswap

// SPDX-License-Identifier: MIT OR Apache-2.0

#include "uri.h"

#include <algorithm>
#include <vector>

namespace engineswap {

namespace {

constexpr const char *kRoleNames[kRoles] = {"", "wal", "tables", "compaction"};

rdb::IOStatus Bad(const std::string &why) {
    return rdb::IOStatus::InvalidArgument(
        "engineswap URI: " + why +
        "; valid: engineswap://ENGINE[?OPTION[=VALUE]&...][&wal=ENGINE][&tables=ENGINE][&compaction=ENGINE], where "
        "ENGINE is auto, posix, libaio or io_uring, and one after wal=, tables= or compaction= has its options in "
        "parentheses: io_uring(depth=8,force_async)");
}

// Cuts at the separators that are outside parentheses. False if these do not match.
bool Split(const std::string &text, char separator, std::vector<std::string> *out) {
    int depth = 0;
    std::string part;
    for (const char c : text) {
        depth += (c == '(') - (c == ')');
        if (depth < 0 || depth > 1)
            return false;
        if (c == separator && depth == 0) {
            out->push_back(part);
            part.clear();
        } else {
            part += c;
        }
    }
    out->push_back(part);
    return depth == 0;
}

// "io_uring(depth=8,sqpoll)" to "io_uring?depth=8&sqpoll".
rdb::IOStatus FromNested(const std::string &nested, std::string *out) {
    const size_t open = nested.find('(');
    *out = nested.substr(0, open);
    if (out->empty())
        return Bad("an engine's name is missing before '" + nested + "'");
    if (out->find('?') != std::string::npos)
        return Bad("the options of '" + nested + "' are written in parentheses");
    if (open == std::string::npos)
        return rdb::IOStatus::OK();
    if (nested.back() != ')')
        return Bad("'" + nested + "' goes on after its parentheses");
    const std::string options = nested.substr(open + 1, nested.size() - open - 2);
    char before = '?';
    for (size_t at = 0; at < options.size();) {
        const size_t end = std::min(options.find(',', at), options.size());
        if (end > at) {
            *out += before + options.substr(at, end - at);
            before = '&';
        }
        at = end + 1;
    }
    return rdb::IOStatus::OK();
}

// The reverse.
std::string ToNested(const std::string &uri) {
    const size_t query = uri.find('?');
    if (query == std::string::npos)
        return uri;
    std::string out = uri.substr(0, query) + "(";
    for (size_t i = query + 1; i < uri.size(); i++)
        out += uri[i] == '&' ? ',' : uri[i];
    return out + ")";
}

bool IsAuto(const std::string &engine) {
    return engine.empty() || engine == "auto";
}

} // namespace

const char *RoleName(Role role) {
    return kRoleNames[role];
}

rdb::IOStatus Uri::Parse(const std::string &text, Uri *out) {
    *out = Uri();
    std::string rest = text;
    const std::string scheme = std::string(kScheme) + "://";
    if (rest.compare(0, scheme.size(), scheme) == 0)
        rest.erase(0, scheme.size());
    else if (rest == kScheme)
        rest.clear();
    else if (rest.find("://") != std::string::npos)
        return Bad("'" + text + "' has another scheme than engineswap://");
    for (const char c : rest)
        if (c == ';' || c == '{' || c == '}' || c == '#' || static_cast<unsigned char>(c) <= ' ')
            // RocksDB's own notation of options could not carry it.
            return Bad(std::string("the character '") + c + "' in '" + text + "'");

    const size_t query = rest.find('?');
    std::string &main = out->engines[kMain];
    main = rest.substr(0, query);
    if (main.find_first_of("()&=") != std::string::npos)
        return Bad("'" + main + "' is no engine's name");
    if (query == std::string::npos)
        return rdb::IOStatus::OK();

    std::vector<std::string> parts;
    if (!Split(rest.substr(query + 1), '&', &parts))
        return Bad("parentheses that do not match in '" + text + "'");
    char before = '?';
    for (const std::string &part : parts) {
        if (part.empty())
            continue;
        const size_t equals = part.find('=');
        const std::string name = part.substr(0, equals);
        size_t role = kMain + 1;
        while (role < kRoles && name != kRoleNames[role])
            role++;
        if (role == kRoles) {
            main += before + part;
            before = '&';
            continue;
        }
        std::string &engine = out->engines[role];
        if (!engine.empty())
            return Bad("'" + name + "' is given twice");
        rdb::IOStatus s = FromNested(equals == std::string::npos ? "" : part.substr(equals + 1), &engine);
        if (!s.ok())
            return s;
    }
    return rdb::IOStatus::OK();
}

rdb::IOStatus Uri::Resolve(const char *variable) {
    if (variable == nullptr || *variable == '\0' || !IsAuto(engines[kMain]))
        return rdb::IOStatus::OK();
    Uri chosen;
    rdb::IOStatus s = Parse(variable, &chosen);
    if (!s.ok())
        return rdb::IOStatus::InvalidArgument("environment variable ENGINESWAP", s.ToString());
    for (size_t role = 0; role < kRoles; role++)
        if (role == kMain || engines[role].empty())
            engines[role] = chosen.engines[role];
    return rdb::IOStatus::OK();
}

std::string Uri::ToString() const {
    std::string out = std::string(kScheme) + "://" + (IsAuto(engines[kMain]) ? "auto" : engines[kMain]);
    char before = engines[kMain].find('?') == std::string::npos ? '?' : '&';
    for (size_t role = kMain + 1; role < kRoles; role++) {
        if (engines[role].empty())
            continue;
        out += before + std::string(kRoleNames[role]) + "=" + ToNested(engines[role]);
        before = '&';
    }
    return out;
}

} // namespace engineswap

/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * engineswap as an I/O engine of fio (external engine, fio 3.33: FIO_IOOPS_VERSION 31).
 *
 *   fio --ioengine=external:PATH/libengineswap_fio.so --uri='io_uring?depth=64' --iodepth=32 ...
 *
 * Each job opens the engine that its options name, after fio has forked, and has one queue of `iodepth`. With an iodepth
 * of 1 there is nothing to overlap, and operations are plain calls, as the library does them for everybody; the option
 * `queue_always`, or naming another option that is for queues, sends them through the queue; with `queue_always` that
 * is so of buffered writes, too. fio's buffers are lent to the
 * queue until their completion; with `fixed_buffers` or `clone_buffers` they are registered with it.
 *
 * What a job asks for is done or refused: sync=dsync makes every write durable at its completion (RWF_DSYNC), sync=sync
 * and atomic=1 are errors, as are options of the engine that could do nothing here.
 */
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fio.h"
#include "optgroup.h"

#include <engineswap.h>

/* What the layout of fio's structs depends on and differs between ways to configure fio. */
#if !defined(CONFIG_POSIXAIO)
#error "configure fio's headers as Debian does: struct io_u has no room for POSIX aio"
#endif

/* fio counts option 0 as absent, so the first member is taken by nothing. */
struct options_of_job {
	void *pad;
	char *uri;
	char *engine;
#define OPTION(name, help) char *name;
#define SWITCH(name, help) unsigned int name;
#include "options.h"
#undef OPTION
#undef SWITCH
};

static const struct {
	const char *name;
	size_t at;
	int is_switch;
} engine_options[] = {
#define OPTION(name, help) { #name, offsetof(struct options_of_job, name), 0 },
#define SWITCH(name, help) { #name, offsetof(struct options_of_job, name), 1 },
#include "options.h"
#undef OPTION
#undef SWITCH
};

static struct fio_option options[] = {
	{
		.name = "uri",
		.lname = "engineswap URI",
		.type = FIO_OPT_STR_STORE,
		.off1 = offsetof(struct options_of_job, uri),
		.help = "Engine and options, for example io_uring?depth=64&coop_taskrun",
		.category = FIO_OPT_C_ENGINE,
		.group = FIO_OPT_G_INVALID,
	},
	{
		.name = "engine",
		.lname = "engineswap engine",
		.type = FIO_OPT_STR_STORE,
		.off1 = offsetof(struct options_of_job, engine),
		.help = "The engine's name, instead of uri; its options follow by name",
		.category = FIO_OPT_C_ENGINE,
		.group = FIO_OPT_G_INVALID,
	},
#define ENGINE_OPTION(option, text, kind)                        \
	{                                                        \
		.name = #option,                                 \
		.lname = #option,                                \
		.type = kind,                                    \
		.off1 = offsetof(struct options_of_job, option), \
		.help = text,                                    \
		.category = FIO_OPT_C_ENGINE,                    \
		.group = FIO_OPT_G_INVALID,                      \
	},
#define OPTION(option, text) ENGINE_OPTION(option, text, FIO_OPT_STR_STORE)
#define SWITCH(option, text) ENGINE_OPTION(option, text, FIO_OPT_STR_SET)
#include "options.h"
#undef OPTION
#undef SWITCH
	{
		.name = NULL,
	},
};

struct job {
	engineswap_engine *engine;
	engineswap_queue *queue; /* NULL where operations are plain calls */
	engineswap_registration *registered; /* fio's buffers */
	engineswap_completion *done;
	struct io_u **queued; /* pushed since the last commit */
	unsigned int nr_queued, depth;
	int broken;
};

static int failed(struct thread_data *td, const char *what, const engineswap_error *err)
{
	log_err("engineswap: %s: %s\n", what, err->message);
	td_verror(td, err->os_errno ? err->os_errno : EINVAL, what);
	return 1;
}

/* The URI of the options, or NULL if it is too long. `uri` wins over nothing: the options by name are added to it. */
static const char *uri_of(const struct options_of_job *o, char *out, size_t size)
{
	const char *base = o->uri && *o->uri ? o->uri : o->engine && *o->engine ? o->engine : "auto";
	size_t n = snprintf(out, size, "%s", base), i;
	int has_options = strchr(base, '?') != NULL;

	for (i = 0; i < sizeof(engine_options) / sizeof(engine_options[0]) && n < size; i++) {
		const char *at = (const char *)o + engine_options[i].at;
		const char *value =
			engine_options[i].is_switch ? (*(const unsigned int *)at ? "on" : NULL) : *(char *const *)at;

		if (!value)
			continue;
		n += snprintf(out + n, size - n, "%c%s=%s", has_options ? '&' : '?', engine_options[i].name, value);
		has_options = 1;
	}
	return n < size ? out : NULL;
}

static int refuse(struct thread_data *td, const char *why)
{
	log_err("engineswap: %s\n", why);
	td_verror(td, EINVAL, "init");
	return 1;
}

/* Whether an engine's URI has an option and does not turn it off. */
static int has_option(const char *uri, const char *name)
{
	const char *at = uri;
	size_t n = strlen(name);

	while ((at = strpbrk(at, "?&"))) {
		at++;
		if (!strncmp(at, name, n) && (at[n] == '\0' || at[n] == '&' || (at[n] == '=' && strncmp(at + n, "=off", 4))))
			return 1;
	}
	return 0;
}

/* Whether an option is named that does nothing to plain calls. With one operation in flight the most of anything (depth,
 * threads) is kept in any case. */
static int for_queues(const char *uri)
{
	const char *at = uri;

	if (!strcmp(uri, "auto") && getenv("ENGINESWAP"))
		at = getenv("ENGINESWAP");
	while ((at = strpbrk(at, "?&"))) {
		at++;
		if (*at && *at != '&' && strncmp(at, "depth=", 6) && strncmp(at, "threads=", 8))
			return 1;
	}
	return 0;
}

/* What of the job cannot be done, or NULL. */
static const char *undoable(const struct thread_data *td)
{
	if ((td->o.sync_io & O_SYNC) == O_SYNC)
		return "sync=sync is not to be had: writes are made durable one by one as O_DSYNC does it; use sync=dsync, "
		       "or fsync=1";
	if (td->o.oatomic)
		return "atomic=1 is not to be had: engineswap opens no files with O_ATOMIC";
	return NULL;
}

static int engineswap_fio_init(struct thread_data *td)
{
	const struct options_of_job *o = td->eo;
	struct job *job = calloc(1, sizeof(*job));
	engineswap_error err;
	char uri[1024];

	if (!job) {
		td_verror(td, ENOMEM, "init");
		return 1;
	}
	td->io_ops_data = job;
	if (engineswap_abi_version() != ENGINESWAP_ABI_VERSION) {
		log_err("engineswap: the library has ABI %u, the engine was built for %u\n", engineswap_abi_version(),
			ENGINESWAP_ABI_VERSION);
		td_verror(td, ELIBBAD, "init");
		return 1;
	}
	if (o->uri && *o->uri && o->engine && *o->engine) {
		log_err("engineswap: give uri or engine, not both\n");
		td_verror(td, EINVAL, "init");
		return 1;
	}
	if (!uri_of(o, uri, sizeof(uri))) {
		log_err("engineswap: the options are too long\n");
		td_verror(td, EINVAL, "init");
		return 1;
	}
	if (undoable(td))
		return refuse(td, undoable(td));
	/* fio has one piece of memory for all operations of a job, which can be registered. */
	if (engineswap_open_for(uri, ENGINESWAP_USES_BUFFERS, &job->engine, &err) != ENGINESWAP_OK)
		return failed(td, "init", &err);
	if (!strcmp(engineswap_engine_name(job->engine), "sim"))
		return refuse(td, "the engine 'sim' is a disk in memory, which has no files of fio's; "
				  "valid: auto, posix, libaio, io_uring");
	if (has_option(engineswap_engine_uri(job->engine), "iopoll") && !td->o.odirect)
		return refuse(td, "iopoll polls for direct transfers, and this job has none: add direct=1");
	job->depth = td->o.iodepth;
	if (td->o.iodepth == 1 && !for_queues(uri))
		return 0;
	if (engineswap_queue_open(job->engine, job->depth, 0, &job->queue, &err) != ENGINESWAP_OK)
		return failed(td, "queue", &err);
	job->done = calloc(job->depth, sizeof(*job->done));
	job->queued = calloc(job->depth, sizeof(*job->queued));
	if (!job->done || !job->queued) {
		td_verror(td, ENOMEM, "init");
		return 1;
	}
	return 0;
}

/* Registers fio's buffers if that was asked for. They are there by now. */
static int engineswap_fio_post_init(struct thread_data *td)
{
	struct job *job = td->io_ops_data;
	const char *uri = engineswap_engine_uri(job->engine), *why;
	engineswap_error err;

	if (!has_option(uri, "fixed_buffers") && !has_option(uri, "clone_buffers"))
		return 0;
	if (td->o.read_iolog_file)
		return refuse(td, "fixed_buffers and clone_buffers exclude read_iolog: for a log fio may replace its buffers");
	if (engineswap_register_buffer(job->engine, td->orig_buffer, td->orig_buffer_size, &job->registered, &err) !=
	    ENGINESWAP_OK)
		return failed(td, "fixed_buffers", &err);
	why = engineswap_registration_refusal(job->registered);
	return why ? refuse(td, why) : 0;
}

/* fio is about to free its buffers. */
static void engineswap_fio_io_u_free(struct thread_data *td, struct io_u *io_u)
{
	struct job *job = td->io_ops_data;

	(void)io_u;
	if (job && job->registered) {
		engineswap_unregister(job->registered);
		job->registered = NULL;
	}
}

static void engineswap_fio_cleanup(struct thread_data *td)
{
	struct job *job = td->io_ops_data;
	engineswap_error err;

	if (!job)
		return;
	/* fio has taken every completion unless the job failed, and then it has said so. */
	if (job->queue && engineswap_queue_close(job->queue, &err) < 0)
		log_err("engineswap: close: %s\n", err.message);
	engineswap_unregister(job->registered);
	engineswap_close(job->engine);
	free(job->done);
	free(job->queued);
	free(job);
	td->io_ops_data = NULL;
}

/* fio keeps a descriptor of its own, for sizes and advice; operations go through the library's file. */
static int engineswap_fio_open(struct thread_data *td, struct fio_file *f)
{
	struct job *job = td->io_ops_data;
	engineswap_file *file = NULL;
	engineswap_error err;
	uint32_t flags = ENGINESWAP_READ;
	int ret = generic_open_file(td, f);

	if (ret)
		return ret;
	if (td_write(td) && !read_only)
		flags |= ENGINESWAP_WRITE;
	if (td->o.odirect)
		flags |= ENGINESWAP_DIRECT_REQUIRE;
	if (engineswap_file_open(job->engine, f->file_name, flags, &file, &err) != ENGINESWAP_OK) {
		failed(td, "open", &err);
		ret = generic_close_file(td, f);
		return ret ? ret : 1;
	}
	FILE_SET_ENG_DATA(f, file);
	return 0;
}

static int engineswap_fio_close(struct thread_data *td, struct fio_file *f)
{
	engineswap_file_close(FILE_ENG_DATA(f));
	FILE_SET_ENG_DATA(f, NULL);
	return generic_close_file(td, f);
}

static int operation_of(const struct thread_data *td, const struct io_u *io_u, engineswap_op *op)
{
	memset(op, 0, sizeof(*op));
	op->file = FILE_ENG_DATA(io_u->file);
	op->user = (uintptr_t)io_u;
	switch (io_u->ddir) {
	case DDIR_READ:
	case DDIR_WRITE:
		op->kind = io_u->ddir == DDIR_READ ? ENGINESWAP_OP_READ : ENGINESWAP_OP_WRITE;
		op->buffer = io_u->xfer_buf;
		op->offset = io_u->offset;
		op->len = io_u->xfer_buflen;
		if (io_u->ddir == DDIR_WRITE && td->o.sync_io)
			op->flags = ENGINESWAP_OP_DSYNC;
		return 0;
	case DDIR_SYNC:
		op->kind = ENGINESWAP_OP_SYNC_ALL;
		return 0;
	case DDIR_DATASYNC:
		op->kind = ENGINESWAP_OP_SYNC_DATA;
		return 0;
	case DDIR_SYNC_FILE_RANGE:
		op->kind = ENGINESWAP_OP_SYNC_RANGE;
		/* fio sets both to -1 as long as nothing has been written. */
		if (io_u->file->first_write < io_u->file->last_write) {
			op->offset = io_u->file->first_write;
			op->len = io_u->file->last_write - io_u->file->first_write;
		}
		return 0;
	default:
		return -1;
	}
}

static void finish(struct io_u *io_u, const engineswap_completion *done)
{
	if (done->result < 0)
		io_u->error = done->os_errno ? done->os_errno : EIO;
	else if (ddir_rw(io_u->ddir))
		io_u->resid = io_u->xfer_buflen - done->result;
}

/* One operation with nothing to overlap with: the library's plain calls. */
static enum fio_q_status alone(struct thread_data *td, struct io_u *io_u, const engineswap_op *op)
{
	struct job *job = td->io_ops_data;
	engineswap_completion done = { 0 };
	engineswap_error err;
	size_t n = op->len;

	if (fio_fill_issue_time(td))
		fio_gettime(&io_u->issue_time, NULL);
	if (op->kind == ENGINESWAP_OP_READ)
		done.result = engineswap_file_read(op->file, op->buffer, op->len, op->offset, op->purpose, &n, &err);
	else if (op->kind == ENGINESWAP_OP_WRITE && (op->flags & ENGINESWAP_OP_DSYNC))
		done.result = engineswap_file_write_dsync(op->file, op->buffer, op->len, op->offset, op->purpose, &err);
	else if (op->kind == ENGINESWAP_OP_WRITE)
		done.result = engineswap_file_write(op->file, op->buffer, op->len, op->offset, op->purpose, &err);
	else
		done.result = engineswap_run(job->engine, op, 1, &done, &err);
	if (done.result < 0) {
		done.os_errno = err.os_errno;
		dprint(FD_IO, "engineswap: %s\n", err.message);
	} else {
		done.result = n;
	}
	finish(io_u, &done);
	if (io_u->error)
		td_verror(td, io_u->error, "xfer");
	return FIO_Q_COMPLETED;
}

static enum fio_q_status engineswap_fio_queue(struct thread_data *td, struct io_u *io_u)
{
	struct job *job = td->io_ops_data;
	engineswap_error err;
	engineswap_op op;
	int32_t code;

	fio_ro_check(td, io_u);
	if (io_u->ddir == DDIR_TRIM) {
		/* Without a queue of its own in the library: fio's call, when nothing is in flight. */
		if (job->queue && engineswap_queue_in_flight(job->queue))
			return FIO_Q_BUSY;
		do_io_u_trim(td, io_u);
		return FIO_Q_COMPLETED;
	}
	if (operation_of(td, io_u, &op)) {
		io_u->error = EOPNOTSUPP;
		return FIO_Q_COMPLETED;
	}
	if (!job->queue)
		return alone(td, io_u, &op);
	code = engineswap_queue_push(job->queue, &op, &err);
	if (code == ENGINESWAP_QUEUE_FULL)
		return FIO_Q_BUSY;
	if (code != ENGINESWAP_OK) {
		log_err("engineswap: %s\n", err.message);
		io_u->error = err.os_errno ? err.os_errno : EIO;
		return FIO_Q_COMPLETED;
	}
	job->queued[job->nr_queued++] = io_u;
	return FIO_Q_QUEUED;
}

static int engineswap_fio_commit(struct thread_data *td)
{
	struct job *job = td->io_ops_data;
	engineswap_error err;
	unsigned int i;

	if (!job->nr_queued)
		return 0;
	if (fio_fill_issue_time(td)) {
		struct timespec now;

		fio_gettime(&now, NULL);
		for (i = 0; i < job->nr_queued; i++) {
			job->queued[i]->issue_time = now;
			io_u_queued(td, job->queued[i]);
		}
		if (td->o.read_iolog_file)
			td->last_issue = now;
	}
	io_u_mark_submit(td, job->nr_queued);
	job->nr_queued = 0;
	if (engineswap_queue_submit(job->queue, &err) != ENGINESWAP_OK)
		return -failed(td, "submit", &err) * (err.os_errno ? err.os_errno : EIO);
	return 0;
}

static int engineswap_fio_getevents(struct thread_data *td, unsigned int min, unsigned int max, const struct timespec *t)
{
	struct job *job = td->io_ops_data;
	engineswap_error err;
	int32_t n;

	(void)t; /* fio passes none to an engine that waits for at least one */
	if (!job->queue)
		return 0;
	if (max > job->depth)
		max = job->depth;
	if (min && engineswap_queue_wait(job->queue, min, &err) != ENGINESWAP_OK)
		return -failed(td, "wait", &err) * (err.os_errno ? err.os_errno : EIO);
	n = engineswap_queue_pop_many(job->queue, job->done, max, &err);
	if (n < 0)
		return -failed(td, "completions", &err) * EIO;
	return n;
}

static struct io_u *engineswap_fio_event(struct thread_data *td, int event)
{
	struct job *job = td->io_ops_data;
	struct io_u *io_u = (struct io_u *)(uintptr_t)job->done[event].user;

	finish(io_u, &job->done[event]);
	return io_u;
}

struct ioengine_ops ioengine = {
	.name = "engineswap",
	.version = FIO_IOOPS_VERSION,
	.flags = FIO_ASYNCIO_SYNC_TRIM | FIO_ASYNCIO_SETS_ISSUE_TIME,
	.init = engineswap_fio_init,
	.post_init = engineswap_fio_post_init,
	.io_u_free = engineswap_fio_io_u_free,
	.cleanup = engineswap_fio_cleanup,
	.open_file = engineswap_fio_open,
	.close_file = engineswap_fio_close,
	.get_file_size = generic_get_file_size,
	.queue = engineswap_fio_queue,
	.commit = engineswap_fio_commit,
	.getevents = engineswap_fio_getevents,
	.event = engineswap_fio_event,
	.options = options,
	.option_struct_size = sizeof(struct options_of_job),
};

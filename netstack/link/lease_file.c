/*
 * Lease files. What a write needs lies in the handle, which a coroutine and the
 * thread that runs its function borrow: the scheduler, which waits for both,
 * closes before the handle does.
 */
#include "netstack/link/lease_file.h"
#include "netstack/program/log.h"
#include "netstack/state.h"

#include <coronet/coro_io.h>

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define RETRY_NS INT64_C(1000000000) /* after there was no thread for a job */

struct net_lease_file {
	char *path, *temporary; /* owned */
	struct net_lease_record next;
	bool removes; /* the next write removes the file */
	bool dirty;   /* there is a next write */
	bool busy;    /* a coroutine writes */
	bool failed;  /* the last write; it was logged */
	struct {      /* the write that a thread does */
		char text[NET_LEASE_TEXT_MAX];
		size_t len; /* 0: removes the file */
		int err;
	} job;
};

int64_t net_lease_wall_s(void)
{
	return (int64_t)time(NULL);
}

/* ---- the line ---- */

size_t net_lease_format(const struct net_lease_record *record,
			char text[NET_LEASE_TEXT_MAX])
{
	const uint8_t *mac = record->mac;
	uint8_t ip[4];

	memcpy(ip, &record->ip, 4);
	return (size_t)snprintf(text, NET_LEASE_TEXT_MAX,
				"coronet-lease 1 "
				"mac=%02x:%02x:%02x:%02x:%02x:%02x "
				"address=%u.%u.%u.%u expires=%" PRId64 "\n",
				mac[0], mac[1], mac[2], mac[3], mac[4], mac[5],
				ip[0], ip[1], ip[2], ip[3], record->expires_s);
}

/*
 * Scans loosely, and then compares with the line that the record has: so there
 * is one spelling of each value.
 */
int net_lease_parse(const char *bytes, size_t len, struct net_lease_record *out)
{
	struct net_lease_record record = {0};
	char text[NET_LEASE_TEXT_MAX], again[NET_LEASE_TEXT_MAX];
	unsigned mac[6], ip[4];
	uint8_t octets[4];

	if (len >= sizeof(text))
		return -EBADMSG;
	memcpy(text, bytes, len);
	text[len] = '\0';
	if (sscanf(text,
		   "coronet-lease 1 mac=%2x:%2x:%2x:%2x:%2x:%2x "
		   "address=%3u.%3u.%3u.%3u expires=%18" SCNd64,
		   &mac[0], &mac[1], &mac[2], &mac[3], &mac[4], &mac[5], &ip[0],
		   &ip[1], &ip[2], &ip[3], &record.expires_s) != 11)
		return -EBADMSG;
	for (unsigned i = 0; i < 6; i++)
		record.mac[i] = (uint8_t)mac[i];
	for (unsigned i = 0; i < 4; i++)
		octets[i] = (uint8_t)ip[i];
	memcpy(&record.ip, octets, 4);
	if (net_lease_format(&record, again) != len ||
	    memcmp(again, text, len) != 0 || record.expires_s < 0 ||
	    octets[0] == 0 || octets[0] == 127 || octets[0] >= 224)
		return -EBADMSG;
	*out = record;
	return 0;
}

/* ---- reading ---- */

long net_lease_read_bytes(const char *path, char to[NET_LEASE_TEXT_MAX])
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	struct stat about;
	long n;

	if (fd < 0)
		return -errno;
	if (fstat(fd, &about) < 0)
		n = -errno;
	else if (!S_ISREG(about.st_mode))
		n = -EBADMSG;
	else if ((n = read(fd, to, NET_LEASE_TEXT_MAX)) < 0)
		n = -errno;
	close(fd);
	return n;
}

int net_lease_file_read(const struct net_lease_file *file, const uint8_t mac[6],
			struct net_lease_record *out)
{
	struct net_lease_record record;
	char bytes[NET_LEASE_TEXT_MAX];
	long n = net_lease_read_bytes(file->path, bytes);
	int err = n < 0 ? (int)n : net_lease_parse(bytes, (size_t)n, &record);

	if (err < 0 && err != -ENOENT)
		net_log_of(NET_COMPONENT_LINK, NET_LOG_WARNING,
			   "coronet.link: %s is ignored: %s", file->path,
			   err == -EBADMSG ? "it is no lease file"
					   : strerror(-err));
	if (err < 0)
		return err;
	if (memcmp(record.mac, mac, 6) != 0 ||
	    (record.expires_s && record.expires_s <= net_lease_wall_s()))
		return -ENOENT;
	*out = record;
	return 0;
}

/* ---- writing, on a thread that may block ---- */

static int write_whole(int fd, const char *text, size_t len)
{
	ssize_t n = write(fd, text, len);

	if (n >= 0 && (size_t)n != len)
		return -ENOSPC;
	return n < 0 || fsync(fd) < 0 ? -errno : 0;
}

int net_lease_replace(const char *path, const char *temporary, const char *text,
		      size_t len)
{
	int fd, err;

	unlink(temporary); /* of a program that was stopped */
	fd = open(temporary,
		  O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return -errno;
	err = write_whole(fd, text, len);
	close(fd);
	if (err == 0 && rename(temporary, path) < 0)
		err = -errno;
	if (err < 0)
		unlink(temporary);
	return err;
}

static void *run_job(void *arg)
{
	struct net_lease_file *file = arg;

	if (file->job.len)
		file->job.err =
			net_lease_replace(file->path, file->temporary,
					  file->job.text, file->job.len);
	else
		file->job.err =
			unlink(file->path) < 0 && errno != ENOENT ? -errno : 0;
	return NULL;
}

/* ---- writing, on the shard ---- */

static void prepare_job(struct net_lease_file *file)
{
	file->dirty = false;
	file->job.len = file->removes
				? 0
				: net_lease_format(&file->next, file->job.text);
}

static void note_result(struct net_lease_file *file, int err)
{
	if (err < 0 && !file->failed)
		net_log_of(NET_COMPONENT_LINK, NET_LOG_WARNING,
			   "coronet.link: %s cannot be written: %s; the next "
			   "start will ask for any address",
			   file->path, strerror(-err));
	file->failed = err < 0;
}

/* Has a thread do the job. Returns 0, or why there is to be no other one. */
static int offload_job(struct net_lease_file *file)
{
	int err;

	prepare_job(file);
	err = coro_offload(run_job, file, NULL);
	if (err < 0)
		file->dirty = true; /* the job did not run */
	if (err == -ECANCELED)
		return err;
	note_result(file, err < 0 ? err : file->job.err);
	return err < 0 ? coro_sleep_ns(RETRY_NS) : 0;
}

static void *write_all(void *arg)
{
	struct net_lease_file *file = arg;
	int err = 0;

	while (err == 0 && file->dirty)
		err = offload_job(file);
	file->busy = false;
	return NULL;
}

void net_lease_file_write(struct net_lease_file *file,
			  const struct net_lease_record *record)
{
	const struct coro_attr attr = {.name = "lease_file"};
	int err = 0;

	file->dirty = true;
	file->removes = !record;
	if (record)
		file->next = *record;
	if (!file->busy)
		err = coro_spawn(net_here()->sched, &attr, write_all, file,
				 NULL);
	if (err < 0)
		note_result(file, err);
	else
		file->busy = true;
}

/* ---- handles ---- */

const char *net_lease_directory(const char *lease_dir, char first[PATH_MAX])
{
	const char *preset = getenv("STATE_DIRECTORY"); /* several, by ':' */

	if (!lease_dir && preset) {
		snprintf(first, PATH_MAX, "%.*s", (int)strcspn(preset, ":"),
			 preset);
		lease_dir = first;
	}
	if (!lease_dir || !*lease_dir || strcmp(lease_dir, "off") == 0)
		return NULL;
	return lease_dir;
}

int net_lease_file_open(const char *directory, unsigned link,
			struct net_lease_file **out)
{
	struct net_lease_file *file = calloc(1, sizeof(*file));

	if (!file)
		return -ENOMEM;
	if (asprintf(&file->path, "%s/dhcp-%u.lease", directory, link + 1) < 0)
		goto free_file;
	if (asprintf(&file->temporary, "%s.new", file->path) < 0)
		goto free_path;
	*out = file;
	return 0;
free_path:
	free(file->path);
free_file:
	free(file);
	return -ENOMEM;
}

/* A coroutine that the scheduler has ended may have left its write undone. */
void net_lease_file_close(struct net_lease_file *file)
{
	if (!file)
		return;
	if (file->busy || file->dirty) {
		prepare_job(file);
		run_job(file);
		note_result(file, file->job.err);
	}
	free(file->temporary);
	free(file->path);
	free(file);
}

/*
 * Packet captures: the option --capture, and the calls of programs.
 */
#include "netstack/program/capture.h"
#include "netstack/program/log.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <coronet/net_user.h>

#include "dpdk_glue/pcap.h"
#include "netstack/options/opt.h"

#define DEFAULT_BYTES ((uint64_t)NET_CAPTURE_MIB << 20)

/* ---- the option ---- */

#define AT(member) OPT_AT(struct net_capture, member)

static const struct opt keys[] = {
	{"bytes", OPT_BYTES, AT(max_bytes), .min = 1024, .max = UINT64_MAX},
	{"packets", OPT_NUMBER, AT(max_packets), .min = 1, .max = UINT64_MAX},
	{"snap", OPT_NUMBER, AT(snap_bytes), .min = 1,
	 .max = GLUE_PCAP_SNAP_MAX},
	{"filter", OPT_TEXT, AT(filter), .arg = "EXPRESSION"},
};

static int parse_keys(char *text, struct net_capture *out,
		      struct opt_error *error)
{
	char *next = text;

	out->path = strsep(&next, ",");
	if (!*out->path)
		return opt_expect(error, "the name of a file");
	while (next) {
		/* A filter may have commas. */
		char *word = strncmp(next, "filter=", 7) == 0
				     ? next
				     : strsep(&next, ",");
		bool last = word == next;

		if (opt_set_key(keys, OPT_COUNT(keys), word, out, error) < 0)
			return -EINVAL;
		if (last)
			return 0;
	}
	return 0;
}

int net_capture_parse(char *text, struct net_capture *out, char *err,
		      size_t err_len)
{
	struct opt_error error;
	int rc;

	*out = (struct net_capture){0};
	rc = parse_keys(text, out, &error);
	if (rc < 0)
		snprintf(err, err_len,
			 "expected %s, for example "
			 "/tmp/a.pcapng,packets=1000",
			 error.expected);
	return rc;
}

/* ---- the calls ---- */

static void log_end(const struct glue_pcap_status *status)
{
	net_log_of(NET_COMPONENT_CAPTURE, NET_LOG_NOTICE,
		   "coronet: capture '%s': %s: %" PRIu64 " packets, %" PRIu64
		   " bytes, %" PRIu64 " dropped",
		   status->path,
		   status->end == GLUE_PCAP_FAILED ? strerror(status->error)
		   : status->end == GLUE_PCAP_FULL ? "a limit is reached"
						   : "stopped",
		   status->packets, status->bytes, status->dropped);
}

static struct glue_pcap_conf conf_of(const struct net_capture *what)
{
	return (struct glue_pcap_conf){
		.path = what->path,
		.filter = what->filter,
		.max_bytes = what->max_bytes ? what->max_bytes : DEFAULT_BYTES,
		.max_packets = what->max_packets,
		.snap_bytes = what->snap_bytes,
		.ended = log_end,
	};
}

int net_capture_start(const struct net_capture *what, char *err, size_t err_len)
{
	struct glue_pcap_conf conf = conf_of(what);

	return glue_pcap_start(&conf, err, err_len);
}

/* For opts->check: looks at the filter and at the file's place. */
static int check_capture(struct net_opts *opts, const struct net_capture *what)
{
	struct glue_pcap_conf conf = conf_of(what);
	struct stat st;
	int err = glue_pcap_check(&conf, opts->error, sizeof(opts->error));

	if (err < 0)
		return err;
	err = opt_check_writable(what->path);
	if (err == -EACCES) /* the user may be another then */
		return 0;
	if (err < 0) {
		snprintf(opts->error, sizeof(opts->error),
			 "capture: cannot write '%s': %s", what->path,
			 strerror(-err));
		return -EINVAL;
	}
	if (stat(what->path, &st) == 0 && !S_ISREG(st.st_mode)) {
		snprintf(opts->error, sizeof(opts->error),
			 "capture: '%s' is not a plain file; name one",
			 what->path);
		return -EINVAL;
	}
	return 0;
}

static int start_as_user(struct net_opts *opts, const struct net_capture *what)
{
	int err = net_user_files_begin(opts);

	if (err == 0)
		err = net_capture_start(what, opts->error, sizeof(opts->error));
	net_user_files_end();
	return err;
}

int net_capture_open(struct net_opts *opts)
{
	struct net_capture capture;
	char *copy;
	int err;

	if (!opts->capture)
		return 0;
	copy = strdup(opts->capture);
	if (!copy)
		return -ENOMEM;
	err = net_capture_parse(copy, &capture, opts->error,
				sizeof(opts->error));
	if (err == 0)
		err = opts->check ? check_capture(opts, &capture)
				  : start_as_user(opts, &capture);
	free(copy);
	return err;
}

void net_capture_stop(void)
{
	glue_pcap_stop();
}

void net_capture_status(struct net_capture_status *out)
{
	static const enum net_capture_state states[] = {
		[GLUE_PCAP_NONE] = NET_CAPTURE_NONE,
		[GLUE_PCAP_RUNS] = NET_CAPTURE_RUNS,
		[GLUE_PCAP_STOPPED] = NET_CAPTURE_STOPPED,
		[GLUE_PCAP_FULL] = NET_CAPTURE_FULL,
		[GLUE_PCAP_FAILED] = NET_CAPTURE_FAILED,
	};
	struct glue_pcap_status status;

	glue_pcap_status(&status);
	*out = (struct net_capture_status){
		.state = states[status.end],
		.packets = status.packets,
		.bytes = status.bytes,
		.dropped = status.dropped,
		.err = -status.error,
	};
	memcpy(out->path, status.path, sizeof(out->path));
}
static_assert(sizeof(((struct net_capture_status *)0)->path) ==
		      sizeof(((struct glue_pcap_status *)0)->path),
	      "the same path");

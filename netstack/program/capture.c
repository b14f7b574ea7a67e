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

#include "dpdk_glue/pcap.h"

#define DEFAULT_BYTES (UINT64_C(100) << 20)

/* ---- the option ---- */

/* "1000", "64K", "10M", "1G"; 0: it is none. */
static uint64_t size_of(const char *text)
{
	static const char units[] = "KMG";
	size_t digits = strspn(text, "0123456789");
	const char *unit = text[digits] ? strchr(units, text[digits]) : NULL;

	if (!digits || digits > 12 || (text[digits] && (!unit || !*unit)) ||
	    (unit && text[digits + 1]))
		return 0;
	return strtoull(text, NULL, 10) << (unit ? 10 * (unit - units + 1) : 0);
}

static bool take_count(const char *value, uint64_t max, uint64_t *out)
{
	size_t digits = strspn(value, "0123456789");

	if (!digits || digits > 18 || value[digits])
		return false;
	*out = strtoull(value, NULL, 10);
	return *out >= 1 && *out <= max;
}

static int take_key(const char *key, const char *value, struct net_capture *out,
		    char *err, size_t err_len)
{
	const char *expected;
	uint64_t n;

	if (strcmp(key, "bytes") == 0) {
		out->max_bytes = size_of(value);
		if (out->max_bytes >= 1024)
			return 0;
		expected = "a size from 1K on, as in 10M";
	} else if (strcmp(key, "packets") == 0) {
		if (take_count(value, UINT64_MAX, &out->max_packets))
			return 0;
		expected = "a number from 1 on";
	} else if (strcmp(key, "snap") == 0) {
		if (take_count(value, GLUE_PCAP_SNAP_MAX, &n)) {
			out->snap_bytes = (unsigned)n;
			return 0;
		}
		expected = "bytes of each frame from 1 to 9216";
	} else {
		snprintf(err, err_len,
			 "unknown key '%s'; it takes bytes=SIZE, "
			 "packets=N, snap=BYTES and, last, filter=EXPRESSION",
			 key);
		return -EINVAL;
	}
	snprintf(err, err_len, "%s is '%s'; expected %s", key, value, expected);
	return -EINVAL;
}

int net_capture_parse(char *text, struct net_capture *out, char *err,
		      size_t err_len)
{
	char *next = strchr(text, ',');

	*out = (struct net_capture){.path = text};
	if (*text == '\0' || *text == ',') {
		snprintf(err, err_len,
			 "the file's name is missing, as in "
			 "/tmp/a.pcapng,packets=1000");
		return -EINVAL;
	}
	while (next) {
		char *key = next + 1, *value;
		int rc;

		*next = '\0';
		if (strncmp(key, "filter=", 7) == 0) {
			out->filter = key + 7;
			return 0;
		}
		next = strchr(key, ',');
		if (next)
			*next = '\0';
		value = strchr(key, '=');
		if (!value) {
			snprintf(err, err_len,
				 "'%s' has no value; write "
				 "key=value, as in packets=1000",
				 key);
			return -EINVAL;
		}
		*value++ = '\0';
		rc = take_key(key, value, out, err, err_len);
		if (rc < 0)
			return rc;
	}
	return 0;
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

int net_capture_start(const struct net_capture *what, char *err, size_t err_len)
{
	struct glue_pcap_conf conf = {
		.path = what->path,
		.filter = what->filter,
		.max_bytes = what->max_bytes ? what->max_bytes : DEFAULT_BYTES,
		.max_packets = what->max_packets,
		.snap_bytes = what->snap_bytes,
		.ended = log_end,
	};

	return glue_pcap_start(&conf, err, err_len);
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

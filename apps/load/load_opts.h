/*
 * The options of the load tools, the same for coronet-load and epoll-load.
 *
 *	struct load_opts opts;
 *
 *	if (argp_parse(&load_opts_argp, argc, argv, 0, NULL, &opts))
 *		return OPT_EXIT_USAGE;
 *
 * or, if the program has options of its own, load_opts_argp as a child whose
 * child_inputs entry is the struct load_opts. The parser fills in the defaults
 * and refuses a wrong value (opts.h). It opens the file of --json at once, so
 * that a path that cannot be written fails before the run.
 */
#pragma once

#include <stdio.h>

#include "apps/common/host.h"
#include "apps/common/opts.h"

#define LOAD_REQUEST_BYTES 1024
#define LOAD_CIPHERS_BYTES 256

enum load_mode {
	LOAD_ECHO, /* request and answer on connections that stay */
	LOAD_CPS,  /* connect, one request and answer, close */
	LOAD_IDLE, /* connect and hold */
	LOAD_BULK, /* write without waiting, read what comes back */
};

struct load_opts {
	struct opt_endpoint target;   /* with target_host, only the port */
	char target_host[HOST_BYTES]; /* a name to be resolved; "": none */
	const char *target_text;      /* as given; borrowed from argv */
	enum load_mode mode;
	uint32_t conns;
	uint32_t size; /* bytes a request, or a write in bulk mode */
	uint64_t rate; /* requests/s over all connections; 0: closed loop */
	int64_t duration_ns; /* of the measurement */
	int64_t warmup_ns;   /* load before it that is not measured */
	int64_t ramp_ns;     /* connections are opened evenly over this time */
	int64_t timeout_ns;  /* for a connect, and for one answer */
	int64_t interval_ns; /* between progress lines; 0: none */
	bool verify;	     /* check that the bytes of payload.h return */
	bool report_limited; /* report even if the generator was the limit */
	const char *http_path; /* HTTP instead of echoes; NULL: echoes */
	char request[LOAD_REQUEST_BYTES]; /* with http_path: what is sent */
	bool tls;	      /* each connection begins with a handshake */
	bool tls_resume;      /* sessions of connections before it */
	const char *tls_ca;   /* verifies the server; NULL: not verified */
	const char *tls_name; /* for SNI and certificates; NULL: none */
	char tls_suites[LOAD_CIPHERS_BYTES];  /* of TLS 1.3; "": default */
	char tls_ciphers[LOAD_CIPHERS_BYTES]; /* of TLS 1.2; "": default */
	FILE *json; /* stdout, or owned until load_report() closes it */
};

/* The last lines of --help: the exit statuses of load_report(). */
#define LOAD_HELP_STATUS                                                       \
	"Exit status: 0 success; 1 something failed, or nothing was "          \
	"measured; 2 a wrong option; 3 no report, because the load generator " \
	"itself was the bottleneck."

extern const struct argp load_opts_argp;

/* "echo", "cps", "idle", "bulk". */
const char *load_mode_name(enum load_mode mode);

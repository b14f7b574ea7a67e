/*
 * DPDK's output: its destination, and the line of it that explains a failure.
 */
#include "dpdk_glue/glue_priv.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <rte_common.h>
#include <rte_log.h>

static struct {
	void (*log)(unsigned level, const char *text, size_t len);
	FILE *file; /* DPDK prints to it while log gets its lines; or NULL */
	struct glue_captured captured; /* the current one, for SIGABRT */
	struct sigaction old_abort;    /* the action before ours */
} eal_log;

static ssize_t write_log(void *unused, const char *text, size_t len)
{
	int level = rte_log_cur_msg_loglevel();

	eal_log.log(level < 1 ? GLUE_LOG_WARNING : (unsigned)level, text, len);
	return (ssize_t)len;
}

/*
 * DPDK logs from its own threads and within bursts, through stdio: a full pipe
 * would stop either, and a lock on stderr both.
 */
void glue_log_redirect(void (*log)(unsigned level, const char *text,
				   size_t len))
{
	eal_log.log = log;
	if (log)
		eal_log.file = fopencookie(
			NULL, "w", (cookie_io_functions_t){.write = write_log});
	if (eal_log.file)
		rte_openlog_stream(eal_log.file);
}

void glue_log_restore(void)
{
	if (!eal_log.file)
		return;
	rte_openlog_stream(NULL);
	fclose(eal_log.file);
	eal_log.file = NULL;
}

/*
 * EAL logs why it cannot go on, and ends the process. The handler writes the
 * last lines to the stderr of before the capture; then abort() goes on.
 */
static void show_last_lines(int signal)
{
	static const char title[] = "DPDK ended the program; it said last:\n";
	char tail[1024];
	off_t end = lseek(eal_log.captured.fd, 0, SEEK_END);
	ssize_t n = pread(eal_log.captured.fd, tail, sizeof(tail),
			  end > (off_t)sizeof(tail) ? end - (off_t)sizeof(tail)
						    : 0);

	(void)signal;
	if (write(eal_log.captured.old_err, title, sizeof(title) - 1) < 0 ||
	    n <= 0)
		return;
	if (write(eal_log.captured.old_err, tail, (size_t)n) < 0)
		return;
}

static void watch_abort(const struct glue_captured *log)
{
	struct sigaction act = {.sa_handler = show_last_lines};

	eal_log.captured = *log;
	sigaction(SIGABRT, &act, &eal_log.old_abort);
}

void glue_capture_start(struct glue_captured *log)
{
	if (eal_log.file)
		rte_openlog_stream(NULL);
	fflush(stdout);
	fflush(stderr);
	log->fd = memfd_create("dpdk-log", MFD_CLOEXEC);
	if (log->fd < 0)
		return;
	log->old_out = dup(STDOUT_FILENO);
	log->old_err = dup(STDERR_FILENO);
	dup2(log->fd, STDOUT_FILENO);
	dup2(log->fd, STDERR_FILENO);
	watch_abort(log);
}

/* Is this a line that gives a reason, and not part of EAL's usage text? */
static bool gives_reason(const char *line)
{
	static const char *const words[] = {
		"rror",	 "ailed",     "nvalid",	      "annot",
		"nable", "ermission", "unrecognized", " not "};

	if (*line == ' ' || *line == '\t')
		return false;
	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		if (strstr(line, words[i]))
			return true;
	return false;
}

void glue_capture_line(const struct glue_captured *log, char *out,
		       size_t out_len)
{
	char line[256];
	size_t len;

	snprintf(out, out_len, "DPDK gives no reason");
	for (const char *at = log->text; *at; at += len + (at[len] == '\n')) {
		len = strcspn(at, "\n");
		snprintf(line, sizeof(line), "%.*s", (int)len, at);
		if (gives_reason(line)) {
			snprintf(out, out_len, "%s", line);
			return;
		}
	}
}

bool glue_capture_has(const struct glue_captured *log, const char *address)
{
	char failed[64];

	snprintf(failed, sizeof(failed), "device %.31s cannot be used",
		 address);
	return strstr(log->text, failed) != NULL;
}

void glue_capture_end(struct glue_captured *log)
{
	static char text[65536];
	ssize_t n;

	if (eal_log.file)
		rte_openlog_stream(eal_log.file);
	log->text = "";
	if (log->fd < 0)
		return;
	sigaction(SIGABRT, &eal_log.old_abort, NULL);
	fflush(stdout);
	fflush(stderr);
	dup2(log->old_out, STDOUT_FILENO);
	dup2(log->old_err, STDERR_FILENO);
	close(log->old_out);
	close(log->old_err);
	n = pread(log->fd, text, sizeof(text) - 1, 0);
	close(log->fd);
	text[n > 0 ? n : 0] = '\0';
	log->text = text;
}

void glue_log_line(const char *format, ...)
{
	char line[512];
	va_list ap;
	int n;

	n = snprintf(line, sizeof(line), "coronet: ");
	va_start(ap, format);
	n += vsnprintf(line + n, sizeof(line) - (size_t)n - 1, format, ap);
	va_end(ap);
	n = RTE_MIN(n, (int)sizeof(line) - 2);
	line[n++] = '\n';
	line[n] = '\0';
	if (eal_log.log)
		eal_log.log(GLUE_LOG_WARNING, line, (size_t)n);
	else
		fputs(line, stderr);
}

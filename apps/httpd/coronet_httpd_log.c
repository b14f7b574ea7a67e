/* coronet-httpd's access log: what a line is made of. */
#include "apps/httpd/coronet_httpd_priv.h"

#include <errno.h>

#include "apps/common/coronet_line_log.h"

int httpd_log_open(void)
{
	if (httpd.net.check)
		return 0;
	return line_log_start(&http_log_kind, &httpd.net, httpd.access_log,
			      httpd.log_form, &httpd.log);
}

uint64_t httpd_log_lost(void)
{
	return httpd.log ? line_log_lost(httpd.log) : 0;
}

static enum http_log_end get_end(int err)
{
	switch (err) {
	case 0:
		return HTTP_LOG_DONE;
	case -ETIMEDOUT:
		return HTTP_LOG_SEND_TIMEOUT;
	case -ECANCELED:
		return HTTP_LOG_STOPPED;
	case -ENOMEM:
		return HTTP_LOG_NO_MEMORY;
	default:
		return HTTP_LOG_CLIENT_CLOSED;
	}
}

void httpd_log_line(const struct visit *visit,
		    const struct httpd_logged *request, int status,
		    uint64_t bytes, int err)
{
	struct http_log_entry entry = {
		.begin_ns = request->begin_ns,
		.end_ns = net_clock_ns(),
		.bytes = bytes,
		.number = request->number,
		.status = status,
		.end = get_end(err),
		.client = net_peer_addr(visit->conn),
		.listener = net_local_addr(visit->conn),
		.has_tls = visit->has_tls,
		.tls = visit->tls,
		.head = request->head,
		.head_len = request->len,
	};

	/* Of a connection that was reset there is no port. */
	entry.listener.port = visit->has_tls ? httpd.tls.port : httpd.port;
	http_log_add(httpd.log, visit->shard->site.shard, &entry);
}

/*
 * Starts, stops and describes captures for the control socket.
 */
#include "netstack/control/control_priv.h"
#include "netstack/program/capture.h"

#include <stdlib.h>
#include <string.h>

static cJSON *show_capture(const char *params)
{
	static const char *const states[] = {
		[NET_CAPTURE_NONE] = "none",	   [NET_CAPTURE_RUNS] = "runs",
		[NET_CAPTURE_STOPPED] = "stopped", [NET_CAPTURE_FULL] = "full",
		[NET_CAPTURE_FAILED] = "failed",
	};
	struct net_capture_status status;
	cJSON *to = cJSON_CreateObject();

	net_capture_status(&status);
	cJSON_AddStringToObject(to, "state", states[status.state]);
	if (status.state == NET_CAPTURE_NONE)
		return to;
	cJSON_AddStringToObject(to, "file", status.path);
	net_control_number(to, "packets", status.packets);
	net_control_number(to, "bytes", status.bytes);
	net_control_number(to, "dropped", status.dropped);
	if (status.err < 0)
		cJSON_AddStringToObject(to, "reason", strerror(-status.err));
	return to;
}

static cJSON *begin_capture(char *text)
{
	struct net_capture what;
	char why[512];

	if (net_capture_parse(text, &what, why, sizeof(why)) < 0)
		return net_control_error("capture: %s", why);
	/* The program's working directory is not the client's. */
	if (what.path[0] != '/')
		return net_control_error(
			"capture: '%s': expected an absolute path, as in "
			"/tmp/a.pcapng: the program writes the file",
			what.path);
	if (net_capture_start(&what, why, sizeof(why)) < 0)
		return net_control_error("%s", why);
	return show_capture(NULL);
}

static cJSON *start_capture(const char *params)
{
	char *text = strdup(params ? params : "");
	cJSON *answer;

	if (!text)
		return NULL;
	/* Before the shards run, there are no links. */
	answer = net_ask_shards() ? begin_capture(text)
				  : net_control_error("the program is "
						      "starting; ask again");
	free(text);
	return answer;
}

static cJSON *stop_capture(const char *params)
{
	net_capture_stop();
	return show_capture(NULL);
}

const struct net_command net_capture_commands[] = {
	{"/coronet/capture",
	 "The capture of packets: state, file, packets, bytes, dropped",
	 show_capture},
	{"/coronet/capture.start",
	 "Starts a capture. Parameters: FILE, an absolute path that the "
	 "program "
	 "writes, and bytes=SIZE, packets=N, snap=BYTES, filter=EXPRESSION, "
	 "which comes last",
	 start_capture},
	{"/coronet/capture.stop",
	 "Ends the capture; its file is complete when state is no longer runs",
	 stop_capture},
	{0},
};

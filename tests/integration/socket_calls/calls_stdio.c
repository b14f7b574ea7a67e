/*
 * Streams of stdio on sockets: fdopen(), freopen() and dprintf().
 */
#include "calls.h"

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#define MANY 100000

static void both_directions(void)
{
	int fd = talk("say:hello read:3 say:abc echo");
	FILE *stream = fdopen(fd, "r+");
	char text[20] = "";

	show("stdio: fileno", fileno(stream) == fd);
	show("stdio: setvbuf", setvbuf(stream, NULL, _IOFBF, 4096));
	show("stdio: getc", getc(stream));
	show("stdio: fread", (long)fread(text, 1, 4, stream));
	show("stdio: ftell", ftell(stream));
	show("stdio: fputs", fputs("xyz", stream));
	show("stdio: fflush", fflush(stream));
	show("stdio: fread the answer", (long)fread(text, 1, 3, stream));
	show("stdio: fprintf", fprintf(stream, "%d\n", 42));
	show("stdio: fflush a line", fflush(stream));
	show_text("stdio: fgets", "%s", strtok(fgets(text, 20, stream), "\n"));
	show("stdio: fseek", fseek(stream, 0, SEEK_SET));
	show("stdio: ungetc", ungetc('q', stream));
	show("stdio: getc after ungetc", getc(stream));
	show("stdio: dprintf", dprintf(fd, "%d %s", 42, "words"));
	show("stdio: shutdown", shutdown(fd, SHUT_WR));
	show("stdio: fread to the end", (long)fread(text, 1, 20, stream));
	show("stdio: feof", feof(stream) != 0);
	show("stdio: ferror", ferror(stream));
	show("stdio: fclose", fclose(stream));
	show("stdio: close after fclose", close(fd));
}

static void one_direction_each(void)
{
	int fd = talk("echo");
	FILE *in = fdopen(fd, "r"), *out = fdopen(dup(fd), "w");
	char *many = calloc(1, MANY), text[20] = "";

	show("stdio: fwrite many", (long)fwrite(many, 1, MANY, out));
	show("stdio: fflush many", fflush(out));
	show("stdio: fread many", (long)fread(many, 1, MANY, in));
	show("stdio: by lines", setvbuf(out, NULL, _IOLBF, 0));
	show("stdio: a line and more", fputs("one\ntw", out));
	show_text("stdio: the line", "%s", strtok(fgets(text, 20, in), "\n"));
	shutdown(fd, SHUT_WR);
	show("stdio: write after shutdown", fputs("o\n", out));
	show("stdio: ferror after shutdown", ferror(out) != 0);
	fclose(out);
	show("stdio: fclose in", fclose(in));
	free(many);
}

/* What a stream holds is sent before its number is closed or replaced. */
static void buffered(void)
{
	int fd = talk("read:5 say:ok end"), copy = dup(fd);
	FILE *stream = fdopen(fd, "w"), *reader;
	char text[8];

	fputs("12345", stream);
	show("stdio: fclose with bytes", fclose(stream));
	show("stdio: the answer to them", recv(copy, text, 2, MSG_WAITALL));
	close(copy);
	fd = talk("read:5 say:ok end");
	copy = dup(fd);
	stream = fdopen(fd, "w");
	fputs("12345", stream);
	stream = freopen("/dev/zero", "r", stream);
	show("stdio: freopen", fileno(stream) == fd);
	show("stdio: getc after freopen", getc(stream));
	show("stdio: answer after freopen", recv(copy, text, 2, MSG_WAITALL));
	fclose(stream);
	close(copy);
	fd = talk("read:5 say:ok end");
	stream = fdopen(fd, "w");
	reader = fdopen(fd, "r");
	fputs("12345", stream);
	fflush(stream);
	show("stdio: two of one number", (long)fread(text, 1, 2, reader));
	show("stdio: fclose one of two", fclose(stream));
	show("stdio: fclose the second", fclose(reader));
}

static void before_connect(void)
{
	struct sockaddr_in addr = peer_addr(peer_port);
	int fd = tcp();
	FILE *stream = fdopen(fd, "r+");
	char text[8];

	show("stdio: connect", connect(fd, (void *)&addr, sizeof(addr)));
	fputs("say:hello end\n", stream);
	show("stdio: fflush after connect", fflush(stream));
	show("stdio: fread after it", (long)fread(text, 1, 5, stream));
	show("stdio: fclose after it", fclose(stream));
}

static void failing(void)
{
	const struct timeval moment = {.tv_usec = 50000};
	int fd = talk("end");
	FILE *stream;

	show("stdio: a wrong mode", fdopen(fd, "x") ? 0 : -1);
	fcntl(fd, F_SETFL, O_NONBLOCK);
	stream = fdopen(fd, "r");
	show("stdio: O_NONBLOCK", getc(stream));
	show("stdio: O_NONBLOCK: ferror", ferror(stream) != 0);
	fcntl(fd, F_SETFL, 0);
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &moment, sizeof(moment));
	clearerr(stream);
	show("stdio: SO_RCVTIMEO", getc(stream));
	fclose(stream);
	fd = talk("reset");
	wait_for(fd, POLLIN);
	stream = fdopen(fd, "r+");
	show("stdio: reset", getc(stream));
	show("stdio: reset: ferror", ferror(stream) != 0);
	clearerr(stream);
	show("stdio: reset: again", getc(stream) == EOF && !ferror(stream));
	fputs("x", stream);
	show("stdio: reset: fflush", fflush(stream));
	fclose(stream);
	close(fd = talk("end"));
	show("stdio: closed", fdopen(fd, "r") ? 0 : -1);
	show("stdio: dprintf closed", dprintf(fd, "x"));
}

static void after_fork(void)
{
	int fd = talk("read:5 say:ok end");
	FILE *stream = fdopen(dup(fd), "w");
	char text[4];
	pid_t child;

	fputs("abcde", stream);
	child = fork();
	if (child == 0)
		_exit(0);
	waitpid(child, NULL, 0);
	show("stdio: fclose after fork", fclose(stream));
	show("stdio: its answer", recv(fd, text, 2, MSG_WAITALL));
	close(fd);
}

void calls_of_stdio(void)
{
	both_directions();
	one_direction_each();
	buffered();
	before_connect();
	failing();
	after_fork();
}

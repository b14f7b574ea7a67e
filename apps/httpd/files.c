#include "apps/httpd/files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static const char own_page[] =
	"<!DOCTYPE html>\n"
	"<html lang=\"en\"><head><meta charset=\"utf-8\"><title>coronet</title>"
	"</head>\n"
	"<body><h1>It answers.</h1>\n"
	"<p>This page came from memory through a TCP stack in user space: one "
	"coroutine a connection, no system call on the way.</p>\n"
	"</body></html>\n";

static const char *type_of(const char *name)
{
	static const char *const types[][2] = {
		{".html", "text/html; charset=utf-8"},
		{".htm", "text/html; charset=utf-8"},
		{".txt", "text/plain; charset=utf-8"},
		{".md", "text/markdown; charset=utf-8"},
		{".css", "text/css; charset=utf-8"},
		{".js", "text/javascript; charset=utf-8"},
		{".mjs", "text/javascript; charset=utf-8"},
		{".json", "application/json"},
		{".xml", "application/xml"},
		{".pdf", "application/pdf"},
		{".wasm", "application/wasm"},
		{".svg", "image/svg+xml"},
		{".png", "image/png"},
		{".jpg", "image/jpeg"},
		{".jpeg", "image/jpeg"},
		{".gif", "image/gif"},
		{".webp", "image/webp"},
		{".ico", "image/x-icon"},
		{".woff2", "font/woff2"},
	};
	const char *dot = strrchr(name, '.');

	for (size_t i = 0; dot && i < sizeof(types) / sizeof(types[0]); i++)
		if (strcasecmp(dot, types[i][0]) == 0)
			return types[i][1];
	return "application/octet-stream";
}

static int refuse(struct files *files, const char *name, int err)
{
	snprintf(files->error, sizeof(files->error),
		 "--root '%s': %s, for example --root index.html", name,
		 err == -EFBIG ? "more than 1024 files or 1 GiB"
			       : strerror(-err));
	return err;
}

/* data: owned by the list from here on, but for our own page. */
static int add(struct files *files, const char *path, const char *type,
	       const char *data, size_t len)
{
	struct file *file = &files->list[files->n];

	if (files->n == FILES_MAX || strlen(path) >= sizeof(file->path))
		return -EFBIG;
	strcpy(file->path, path);
	file->data = data;
	file->len = len;
	file->fields_len = (size_t)snprintf(
		file->fields, sizeof(file->fields),
		"Content-Type: %s\r\nContent-Length: %zu\r\n", type, len);
	files->n++;
	return 0;
}

/* The whole of an open file: malloc'ed, to *data. */
static int read_all(int fd, size_t len, char **data)
{
	size_t done = 0;

	*data = malloc(len + 1);
	if (!*data)
		return -ENOMEM;
	while (done < len) {
		ssize_t n = read(fd, *data + done, len - done);

		if (n <= 0) {
			int err = n < 0 ? -errno : -EIO; /* it has shrunk */

			free(*data);
			return err;
		}
		done += (size_t)n;
	}
	return 0;
}

/* Not to wait for somebody who writes to a FIFO. */
#define OPEN_FLAGS (O_RDONLY | O_CLOEXEC | O_NONBLOCK)

/*
 * Opens a name of a folder, which a symbolic link does not lead out of: -EXDEV
 * if one would. Kernels before 5.6, and sandboxes, have no openat2(2): there,
 * no link is followed at all.
 */
static int open_beneath(int dir, const char *name)
{
	struct open_how how = {.flags = OPEN_FLAGS, .resolve = RESOLVE_BENEATH};
	long fd = syscall(SYS_openat2, dir, name, &how, sizeof(how));

	if (fd < 0 && (errno == ENOSYS || errno == EPERM)) {
		fd = openat(dir, name, OPEN_FLAGS | O_NOFOLLOW);
		if (fd < 0 && errno == ELOOP)
			return -EXDEV;
	}
	return fd < 0 ? -errno : (int)fd;
}

/* An open regular file, found as "/" and its name, and as also unless NULL. */
static int load_file(struct files *files, int fd, const char *name,
		     const char *also)
{
	char path[FILES_PATH_MAX], *data = NULL;
	struct stat st;
	int err = 0;

	if (fd < 0)
		return fd;
	if (fstat(fd, &st))
		err = -errno;
	else if (!S_ISREG(st.st_mode))
		err = -EISDIR;
	else if ((size_t)st.st_size > FILES_BYTES_MAX - files->bytes ||
		 strlen(name) >= sizeof(path) - 1)
		err = -EFBIG;
	else
		err = read_all(fd, (size_t)st.st_size, &data);
	close(fd);
	if (err < 0)
		return err;
	files->bytes += (size_t)st.st_size;
	snprintf(path, sizeof(path), "/%s", name);
	err = add(files, path, type_of(name), data, (size_t)st.st_size);
	if (err < 0)
		free(data);
	else if (also)
		err = add(files, also, type_of(name), data, (size_t)st.st_size);
	return err;
}

static void note_outside(struct files *files, const char *name)
{
	if (files->n_outside++ == 0)
		snprintf(files->outside, sizeof(files->outside), "%s", name);
}

static int load_folder(struct files *files, const char *root)
{
	DIR *dir = opendir(root);
	struct dirent *entry;
	int err = 0;

	if (!dir)
		return -errno;
	while (err == 0 && (entry = readdir(dir))) {
		bool index = strcmp(entry->d_name, "index.html") == 0;

		if (entry->d_name[0] == '.')
			continue;
		err = load_file(files, open_beneath(dirfd(dir), entry->d_name),
				entry->d_name, index ? "/" : NULL);
		if (err == -EXDEV)
			note_outside(files, entry->d_name);
		/* Folders, devices and the like are not ours either. */
		if (err == -EISDIR || err == -EXDEV)
			err = 0;
		if (err < 0) {
			char path[460];

			snprintf(path, sizeof(path), "%.200s/%s", root,
				 entry->d_name);
			refuse(files, path, err);
		}
	}
	closedir(dir);
	return err;
}

static int compare(const void *a, const void *b)
{
	return strcmp(((const struct file *)a)->path,
		      ((const struct file *)b)->path);
}

/* What the caller names itself may be a link to anywhere. */
static int open_or_errno(const char *path)
{
	int fd = open(path, OPEN_FLAGS);

	return fd < 0 ? -errno : fd;
}

int files_load(struct files *files, const char *root)
{
	struct stat st;
	const char *name;
	int err;

	*files = (struct files){.list = calloc(FILES_MAX, sizeof(struct file))};
	if (!files->list)
		return refuse(files, root ? root : "", -ENOMEM);
	if (!root)
		return add(files, "/", "text/html; charset=utf-8", own_page,
			   sizeof(own_page) - 1);
	name = strrchr(root, '/') ? strrchr(root, '/') + 1 : root;
	if (stat(root, &st))
		err = -errno;
	else if (S_ISDIR(st.st_mode))
		err = load_folder(files, root);
	else
		err = load_file(files, open_or_errno(root), name, "/");
	if (err == 0 && files->n == 0)
		err = -ENOENT;
	if (err < 0) {
		files_free(files);
		return files->error[0] ? err : refuse(files, root, err);
	}
	qsort(files->list, files->n, sizeof(struct file), compare);
	return 0;
}

void files_free(struct files *files)
{
	for (unsigned i = 0; i < files->n; i++)
		if (files->list[i].data != own_page &&
		    strcmp(files->list[i].path, "/") != 0)
			free((char *)files->list[i].data);
	free(files->list);
	files->list = NULL;
	files->n = 0;
}

const struct file *files_find(const struct files *files, const char *path,
			      size_t len)
{
	struct file key;

	if (len >= sizeof(key.path))
		return NULL;
	memcpy(key.path, path, len);
	key.path[len] = '\0';
	return bsearch(&key, files->list, files->n, sizeof(key), compare);
}

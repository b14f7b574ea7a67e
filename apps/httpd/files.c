#include "apps/httpd/files.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <sodium.h>

#include "apps/httpd/conditions.h"

static const char own_page[] =
	"<!DOCTYPE html>\n"
	"<html lang=\"en\"><head><meta charset=\"utf-8\"><title>coronet</title>"
	"</head>\n"
	"<body><h1>It answers.</h1>\n"
	"<p>This page came from memory through a TCP stack in user space: one "
	"coroutine a connection, no system call on the way.</p>\n"
	"</body></html>\n";

static int refuse(struct files *files, const char *name, int err)
{
	char why[64];

	snprintf(why, sizeof(why), "more than %d files or 1 GiB", FILES_MAX);
	snprintf(files->error, sizeof(files->error),
		 "--root '%s': %s, for example --root index.html", name,
		 err == -EFBIG	 ? why
		 : err == -ELOOP ? "too many folders within folders"
				 : strerror(-err));
	return err;
}

/* An entity tag that is the same wherever the same bytes are served. */
static void make_etag(struct file_body *body)
{
	static const unsigned char key[crypto_shorthash_KEYBYTES];
	unsigned char hash[crypto_shorthash_BYTES];
	char *out = body->etag;

	crypto_shorthash(hash, (const unsigned char *)body->data, body->len,
			 key);
	*out++ = '"';
	for (unsigned i = 0; i < sizeof(hash); i++)
		out += sprintf(out, "%02x", hash[i]);
	strcpy(out, "\"");
}
static_assert(sizeof(((struct file_body *)0)->etag) >=
		      2 * crypto_shorthash_BYTES + 3,
	      "its digits, two quotes and a NUL");

/* data: owned by the list from here on, but for our own page and an index. */
static int add(struct files *files, const char *path, const char *type,
	       time_t modified, const char *data, size_t len)
{
	struct file *file = &files->list[files->n];
	time_t now = time(NULL);

	if (files->n == FILES_MAX)
		return -EFBIG;
	if (strlen(path) >= sizeof(file->path))
		return -ENAMETOOLONG;
	strcpy(file->path, path);
	file->type = type;
	file->modified = modified < now ? modified : now; /* RFC 9110 8.8.2.1 */
	file->own.data = data;
	file->own.len = len;
	make_etag(&file->own);
	files->n++;
	return 0;
}

/* The same bytes at the path of their folder. */
static int add_index(struct files *files, const char *path)
{
	const struct file *file = &files->list[files->n - 1];
	int err = add(files, path, file->type, file->modified, file->own.data,
		      file->own.len);

	if (err == 0)
		files->list[files->n - 1].is_index = true;
	return err;
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

/* An open regular file, found at "/" and its path; fd is closed. */
static int load_file(struct files *files, int fd, const struct stat *st,
		     const char *path)
{
	char at[FILES_PATH_MAX], *data = NULL;
	int err = 0;

	if ((size_t)st->st_size > FILES_BYTES_MAX - files->bytes)
		err = -EFBIG;
	else if (strlen(path) >= sizeof(at) - 1)
		err = -ENAMETOOLONG;
	else
		err = read_all(fd, (size_t)st->st_size, &data);
	close(fd);
	if (err < 0)
		return err;
	files->bytes += (size_t)st->st_size;
	snprintf(at, sizeof(at), "/%s", path);
	err = add(files, at, types_find(&files->types, path), st->st_mtime,
		  data, (size_t)st->st_size);
	if (err < 0)
		free(data);
	return err;
}

static void note(unsigned *n, char *first, size_t room, const char *name)
{
	if ((*n)++ == 0)
		snprintf(first, room, "%s", name);
}

/* A folder that is being loaded, and those it lies in. */
struct folder {
	const struct folder *parent;
	const char *name; /* of the outermost, as it was given */
	int root;	  /* the same, open */
	const char *path; /* from there: "" or "a/b/" */
	unsigned depth;
	dev_t dev;
	ino_t ino;
};

static int load_folder(struct files *files, int fd, const struct stat *st,
		       struct folder *folder);

/* Whether a link has led back to a folder that is being loaded. */
static bool is_within_itself(const struct folder *folder, const struct stat *st)
{
	for (; folder; folder = folder->parent)
		if (folder->dev == st->st_dev && folder->ino == st->st_ino)
			return true;
	return false;
}

/* What lies in a folder, by its path from the root. */
static int load_entry(struct files *files, const struct folder *in,
		      const char *path)
{
	char inside[FILES_PATH_MAX + 1];
	struct folder folder = {.parent = in,
				.name = in->name,
				.root = in->root,
				.path = inside,
				.depth = in->depth + 1};
	struct stat st;
	int fd = open_beneath(in->root, path);

	if (fd == -EXDEV)
		note(&files->n_outside, files->outside, sizeof(files->outside),
		     path);
	if (fd < 0)
		return fd == -EXDEV ? 0 : fd;
	if (fstat(fd, &st)) {
		close(fd);
		return -EIO;
	}
	if (S_ISREG(st.st_mode))
		return load_file(files, fd, &st, path);
	if (!S_ISDIR(st.st_mode) || is_within_itself(in, &st)) {
		close(fd); /* devices and the like are not ours */
		return 0;
	}
	if (folder.depth > FILES_DEPTH_MAX) {
		close(fd);
		return -ELOOP;
	}
	snprintf(inside, sizeof(inside), "%s/", path);
	return load_folder(files, fd, &st, &folder);
}

/* One name of a folder: refused by its whole path if that fails. */
static int load_name(struct files *files, const struct folder *in,
		     const char *name)
{
	char path[FILES_PATH_MAX], whole[FILES_PATH_MAX + 208];
	unsigned before = files->n;
	int err;

	if ((size_t)snprintf(path, sizeof(path), "%s%s", in->path, name) >=
	    sizeof(path))
		err = -ENAMETOOLONG;
	else
		err = load_entry(files, in, path);
	if (err == 0 && files->n > before && strcmp(name, "index.html") == 0 &&
	    strcmp(files->list[files->n - 1].path + 1, path) == 0) {
		snprintf(whole, sizeof(whole), "/%s", in->path);
		err = add_index(files, whole);
	}
	if (err < 0 && !files->error[0]) {
		snprintf(whole, sizeof(whole), "%.200s/%s", in->name, path);
		refuse(files, whole, err);
	}
	return err;
}

/* An open folder; fd is closed. */
static int load_folder(struct files *files, int fd, const struct stat *st,
		       struct folder *folder)
{
	DIR *dir = fdopendir(fd);
	struct dirent *entry;
	int err = 0;

	if (!dir) {
		close(fd);
		return -ENOMEM;
	}
	folder->dev = st->st_dev;
	folder->ino = st->st_ino;
	while (err == 0 && (entry = readdir(dir)))
		if (entry->d_name[0] != '.')
			err = load_name(files, folder, entry->d_name);
	closedir(dir);
	return err;
}

/* ---- what is known when all are there ---- */

static void format_fields(const struct file *file, struct file_body *body)
{
	const char *coding = body->coding;
	bool varies = file->gzip || file->brotli;
	char modified[HTTP_DATE_BYTES];

	http_write_date(file->modified, modified);
	body->fields_len = (size_t)snprintf(
		body->fields, sizeof(body->fields),
		"Content-Type: %s\r\nContent-Length: %zu\r\nETag: %s\r\n"
		"Last-Modified: %s\r\nAccept-Ranges: bytes\r\n%s%s%s%s",
		file->type, body->len, body->etag, modified,
		varies ? "Vary: Accept-Encoding\r\n" : "",
		coding ? "Content-Encoding: " : "", coding ? coding : "",
		coding ? "\r\n" : "");
}

/* The compressed form of a file, if it is there: owned by the caller. */
static int find_coded(struct files *files, const char *path,
		      const struct file *file, const char *end,
		      const char *coding, struct file_body **out)
{
	char name[FILES_PATH_MAX + 16];
	const struct file *coded;

	snprintf(name, sizeof(name), "%s%s", path, end);
	coded = files_find(files, name, strlen(name));
	if (!coded)
		return 0;
	if (coded->modified < file->modified) {
		if (!file->is_index)
			note(&files->n_stale, files->stale,
			     sizeof(files->stale), name);
		return 0;
	}
	*out = malloc(sizeof(**out));
	if (!*out)
		return -ENOMEM;
	**out = coded->own;
	(*out)->coding = coding;
	return 0;
}

static int finish(struct files *files, struct file *file)
{
	char path[FILES_PATH_MAX + 16];
	int err;

	snprintf(path, sizeof(path), "%s%s", file->path,
		 file->is_index ? "index.html" : "");
	err = find_coded(files, path, file, ".gz", "gzip", &file->gzip);
	if (err == 0)
		err = find_coded(files, path, file, ".br", "br", &file->brotli);
	if (err < 0)
		return err;
	format_fields(file, &file->own);
	if (file->gzip)
		format_fields(file, file->gzip);
	if (file->brotli)
		format_fields(file, file->brotli);
	return 0;
}

static int compare(const void *a, const void *b)
{
	return strcmp(((const struct file *)a)->path,
		      ((const struct file *)b)->path);
}

/* What the caller names itself may be a link to anywhere. */
static int load_root(struct files *files, const char *root)
{
	const char *name = strrchr(root, '/') ? strrchr(root, '/') + 1 : root;
	int fd = open(root, OPEN_FLAGS), at, err;
	struct folder folder = {.name = root, .path = ""};
	struct stat st;

	if (fd < 0)
		return -errno;
	if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode)) {
		err = load_file(files, fd, &st, name);
		return err < 0 ? err : add_index(files, "/");
	}
	if (!S_ISDIR(st.st_mode)) {
		close(fd);
		return -EINVAL;
	}
	at = dup(fd);
	if (at < 0) {
		close(fd);
		return -errno;
	}
	folder.root = at;
	err = load_folder(files, fd, &st, &folder);
	close(at);
	return err;
}

static int load(struct files *files, const char *root)
{
	int err = 0;

	if (root)
		err = load_root(files, root);
	else
		err = add(files, "/", "text/html; charset=utf-8", time(NULL),
			  own_page, sizeof(own_page) - 1);
	if (err == 0 && files->n == 0)
		err = -ENOENT;
	qsort(files->list, files->n, sizeof(struct file), compare);
	for (unsigned i = 0; err == 0 && i < files->n; i++)
		err = finish(files, &files->list[i]);
	return err;
}

int files_load(struct files *files, const char *root, const char *types)
{
	int err;

	*files = (struct files){.list = calloc(FILES_MAX, sizeof(struct file))};
	if (!files->list)
		return refuse(files, root ? root : "", -ENOMEM);
	err = types_load(&files->types, types);
	if (err < 0) {
		snprintf(files->error, sizeof(files->error),
			 "--mime-types '%s': %s, for example --mime-types "
			 "/etc/mime.types",
			 types, strerror(-err));
		files_free(files);
		return err;
	}
	err = load(files, root);
	if (err < 0) {
		files_free(files);
		return files->error[0] ? err : refuse(files, root, err);
	}
	return 0;
}

void files_free(struct files *files)
{
	for (unsigned i = 0; i < files->n; i++) {
		struct file *file = &files->list[i];

		if (file->own.data != own_page && !file->is_index)
			free((char *)file->own.data);
		free(file->gzip);
		free(file->brotli);
	}
	types_free(&files->types);
	free(files->list);
	files->list = NULL;
	files->n = 0;
}

/* A path that need not end with NUL. */
struct key {
	const char *path;
	size_t len;
};

static int compare_key(const void *key, const void *file)
{
	const struct key *k = key;
	const char *path = ((const struct file *)file)->path;
	int order = strncmp(k->path, path, k->len);

	return order ? order : path[k->len] ? -1 : 0;
}

const struct file *files_find(const struct files *files, const char *path,
			      size_t len)
{
	const struct key key = {path, len};

	if (len >= FILES_PATH_MAX || memchr(path, '\0', len))
		return NULL;
	return bsearch(&key, files->list, files->n, sizeof(struct file),
		       compare_key);
}

bool files_is_folder(const struct files *files, const char *path, size_t len)
{
	char folder[FILES_PATH_MAX];

	if (len + 1 >= sizeof(folder))
		return false;
	memcpy(folder, path, len);
	folder[len] = '/';
	return files_find(files, folder, len + 1) != NULL;
}

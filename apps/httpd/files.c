/* Keeps the files of a folder in memory, and finds them by path. */
#include "apps/httpd/files.h"

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

#include "apps/httpd/conditions.h"
#include "apps/httpd/content.h"

static const char own_page[] =
	"<!DOCTYPE html>\n"
	"<html lang=\"en\"><head><meta charset=\"utf-8\"><title>coronet</title>"
	"</head>\n"
	"<body><h1>It answers.</h1>\n"
	"<p>This page came from memory through a TCP stack in user space: one "
	"coroutine a connection, no system call on the way.</p>\n"
	"</body></html>\n";

static int refuse_root(struct files *files, const char *name, int err)
{
	char why[64];

	snprintf(why, sizeof(why), "more than %d files or 1 GiB", FILES_MAX);
	snprintf(files->error, sizeof(files->error),
		 "--root '%s': %s, for example --root index.html", name,
		 err == -EFBIG	 ? why
		 : err == -ELOOP ? "folders are nested too deeply"
				 : strerror(-err));
	return err;
}

/* The file that was at a path before, or NULL. */
static const struct file *file_before(const struct files *files,
				      const char *path)
{
	return files->before ? files_find(files->before, path, strlen(path))
			     : NULL;
}

#define LIST_FIRST 64u /* of a list that doubles */

static int list_open(struct files *files)
{
	files->list = malloc(LIST_FIRST * sizeof(struct file));
	files->room = LIST_FIRST;
	return files->list ? 0 : -ENOMEM;
}

/* Appends a zeroed entry to the list; NULL: no memory. */
static struct file *list_next(struct files *files)
{
	struct file *list = files->list;

	if (files->n == files->room) {
		list = realloc(list, 2 * files->room * sizeof(*list));
		if (!list)
			return NULL;
		files->list = list;
		files->room *= 2;
	}
	return memset(&list[files->n], 0, sizeof(*list));
}

/* The list takes the reference to content; NULL: our own page. */
static int add_file(struct files *files, const char *path, const char *type,
		    struct content *content)
{
	const struct file *before = file_before(files, path);
	static char own_etag[CONTENT_ETAG_BYTES];
	struct file *file;
	time_t now = time(NULL);

	if (files->n == FILES_MAX)
		return -EFBIG;
	if (strlen(path) >= sizeof(file->path))
		return -ENAMETOOLONG;
	file = list_next(files);
	if (!file)
		return -ENOMEM;
	strcpy(file->path, path);
	file->type = type;
	file->content = content;
	if (content) {
		file->own.data = content->data;
		file->own.len = content->len;
		file->own.etag = content->etag;
		file->modified = content->modified.tv_sec;
	} else {
		file->own.data = own_page;
		file->own.len = sizeof(own_page) - 1;
		content_tag(own_etag, own_page, sizeof(own_page) - 1);
		file->own.etag = own_etag;
		file->modified = now;
	}
	if (before && before->content == content)
		file->modified = before->modified;
	else if (file->modified > now)
		file->modified = now; /* RFC 9110 8.8.2.1 */
	files->n++;
	return 0;
}

/* Adds the same bytes at the path of their folder. */
static int add_index(struct files *files, const char *path)
{
	const struct file *file = &files->list[files->n - 1];
	struct content *content = file->content;
	int err = add_file(files, path, file->type, content);

	if (err == 0) {
		content->refs++;
		files->list[files->n - 1].is_index = true;
	}
	return err;
}

/* O_NONBLOCK: do not wait for a writer of a FIFO. */
#define OPEN_FLAGS (O_RDONLY | O_CLOEXEC | O_NONBLOCK)

/*
 * Opens a name in a folder. A symbolic link that leads out of the folder is
 * -EXDEV. Kernels before 5.6, and sandboxes, have no openat2(2): there, no link
 * is followed at all.
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

/* Loads an open regular file, found at "/" and its path; fd is closed. */
static int load_file(struct files *files, int fd, const struct stat *st,
		     const char *path)
{
	struct content *content = NULL;
	const struct file *before;
	char at[FILES_PATH_MAX];
	int err = 0;

	if ((size_t)snprintf(at, sizeof(at), "/%s", path) >= sizeof(at))
		err = -ENAMETOOLONG;
	else if ((size_t)st->st_size > FILES_BYTES_MAX - files->bytes)
		err = -EFBIG;
	if (err == 0) {
		before = file_before(files, at);
		err = content_get(fd, st, before ? before->content : NULL,
				  &content);
	}
	close(fd);
	if (err == 0 && content->len > FILES_BYTES_MAX - files->bytes)
		err = -EFBIG; /* it has grown */
	if (err == 0)
		err = add_file(files, at, types_find(&files->types, path),
			       content);
	if (err < 0) {
		content_drop(content);
		return err;
	}
	files->bytes += content->len;
	return 0;
}

static void note_name(unsigned *n, char *first, size_t room, const char *name)
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

/* Has a link led back to a folder that is being loaded? */
static bool is_within_itself(const struct folder *folder, const struct stat *st)
{
	for (; folder; folder = folder->parent)
		if (folder->dev == st->st_dev && folder->ino == st->st_ino)
			return true;
	return false;
}

/* Is it a shortage or a limit of this program, and not the name's fault? */
static bool is_own_limit(int err)
{
	return err == -ENOMEM || err == -EMFILE || err == -ENFILE ||
	       err == -EFBIG || err == -ENAMETOOLONG;
}

/*
 * Decides about a name that cannot be read. Returns 0, and leaves it out, if a
 * link leads out of the folder, nowhere or in a circle, if it is no file, if
 * this user or its file system does not let it be read, and if the name has
 * just been removed: none of these is a reason not to serve the others.
 */
static int leave_out(struct files *files, int root, const char *path, int err)
{
	struct stat st;

	if (err == -EXDEV) {
		note_name(&files->n_outside, files->outside,
			  sizeof(files->outside), path);
		return 0;
	}
	if (is_own_limit(err))
		return err;
	if ((err != -ENOENT && err != -ELOOP) ||
	    (fstatat(root, path, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
	     S_ISLNK(st.st_mode)))
		note_name(&files->n_broken, files->broken,
			  sizeof(files->broken), path);
	return 0;
}

/* Loads an entry of a folder by its path from the root. */
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
	int fd = open_beneath(in->root, path), err = fd;

	if (fd >= 0 && fstat(fd, &st)) {
		err = -errno;
		close(fd);
	} else if (fd >= 0 && S_ISREG(st.st_mode)) {
		err = load_file(files, fd, &st, path);
	} else if (fd >= 0 && !S_ISDIR(st.st_mode)) {
		err = -ENODEV;
		close(fd);
	}
	if (err < 0)
		return leave_out(files, in->root, path, err);
	if (S_ISREG(st.st_mode))
		return 0;
	if (is_within_itself(in, &st)) {
		close(fd);
		return leave_out(files, in->root, path, -ELOOP);
	}
	if (folder.depth > FILES_DEPTH_MAX) {
		close(fd);
		return -ELOOP;
	}
	snprintf(inside, sizeof(inside), "%s/", path);
	return load_folder(files, fd, &st, &folder);
}

/* Loads one name of a folder; an error has its whole path. */
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
		refuse_root(files, whole, err);
	}
	return err;
}

/* Loads an open folder; fd is closed. */
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
	for (;;) {
		errno = 0;
		entry = readdir(dir);
		if (!entry)
			break;
		if (entry->d_name[0] != '.')
			err = load_name(files, folder, entry->d_name);
		if (err < 0)
			break;
	}
	if (err == 0 && errno) /* the folder's other names are not known */
		err = folder->path[0] ? leave_out(files, folder->root,
						  folder->path, -errno)
				      : -errno;
	closedir(dir);
	return err;
}

/* ---- the finished table ---- */

static void format_fields(const struct file *file, struct file_body *body)
{
	const char *coding = body->coding;
	const size_t room = sizeof(body->fields);
	char modified[HTTP_DATE_BYTES];
	int n;

	http_write_date(file->modified, modified);
	n = snprintf(body->fields, room,
		     "Accept-Ranges: bytes\r\nContent-Type: %s\r\n"
		     "Content-Length: %zu\r\n",
		     file->type, body->len);
	body->validators = (uint16_t)n;
	n += snprintf(
		body->fields + n, room - (size_t)n,
		"ETag: %s\r\nLast-Modified: %s\r\n%s", body->etag, modified,
		file->gzip || file->brotli ? "Vary: Accept-Encoding\r\n" : "");
	body->coding_field = (uint16_t)n;
	if (coding)
		n += snprintf(body->fields + n, room - (size_t)n,
			      "Content-Encoding: %s\r\n", coding);
	body->fields_len = (uint16_t)n;
}

/* The compressed form of a file, if it is there: owned by the caller. */
static int find_coded(struct files *files, const char *path,
		      const struct file *file, const char *end,
		      const char *coding, struct file_body **out)
{
	char name[FILES_PATH_MAX + 20];
	const struct file *coded;

	snprintf(name, sizeof(name), "%s%s", path, end);
	coded = files_find(files, name, strlen(name));
	if (!coded)
		return 0;
	if (coded->modified < file->modified) {
		if (!file->is_index)
			note_name(&files->n_stale, files->stale,
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

/*
 * Writes a folder's path as a Location has it. The client's own words are not
 * used: they might begin with "//" and lead to another server.
 */
static int make_location(struct file *file)
{
	static const char plain[] = "abcdefghijklmnopqrstuvwxyz"
				    "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
				    "-._~!$&'()*+,;=:@/";
	char *out = malloc(3 * strlen(file->path) + 1);

	file->location = out;
	if (!out)
		return -ENOMEM;
	for (const char *at = file->path; *at; at++)
		if (strchr(plain, *at))
			*out++ = *at;
		else
			out += sprintf(out, "%%%02X", (unsigned char)*at);
	*out = '\0';
	return 0;
}

static int finish_file(struct files *files, struct file *file)
{
	char path[FILES_PATH_MAX + 16];
	int err;

	snprintf(path, sizeof(path), "%s%s", file->path,
		 file->is_index ? "index.html" : "");
	err = find_coded(files, path, file, ".gz", "gzip", &file->gzip);
	if (err == 0)
		err = find_coded(files, path, file, ".br", "br", &file->brotli);
	if (err == 0 && file->is_index && file->path[1])
		err = make_location(file);
	if (err < 0)
		return err;
	format_fields(file, &file->own);
	if (file->gzip)
		format_fields(file, file->gzip);
	if (file->brotli)
		format_fields(file, file->brotli);
	return 0;
}

static int compare_paths(const void *a, const void *b)
{
	return strcmp(((const struct file *)a)->path,
		      ((const struct file *)b)->path);
}

/* The root that the caller names may itself be a link to anywhere. */
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

static int load_files(struct files *files, const char *root)
{
	int err = 0;

	if (root)
		err = load_root(files, root);
	else
		err = add_file(files, "/", "text/html; charset=utf-8", NULL);
	if (err == 0 && files->n == 0)
		err = -ENOENT;
	qsort(files->list, files->n, sizeof(struct file), compare_paths);
	for (unsigned i = 0; err == 0 && i < files->n; i++)
		err = finish_file(files, &files->list[i]);
	return err;
}

int files_load(struct files *files, const char *root, const char *types)
{
	int err;

	*files = (struct files){0};
	if (list_open(files) < 0)
		return refuse_root(files, root ? root : "", -ENOMEM);
	err = types_load(&files->types, types);
	if (err < 0) {
		snprintf(files->error, sizeof(files->error),
			 "--mime-types '%s': %s, for example --mime-types "
			 "/etc/mime.types",
			 types, strerror(-err));
		files_free(files);
		return err;
	}
	err = load_files(files, root);
	if (err < 0) {
		files_free(files);
		return files->error[0] ? err : refuse_root(files, root, err);
	}
	return 0;
}

/* Do both have the same files at the same paths? */
static bool are_same(const struct files *a, const struct files *b)
{
	for (unsigned i = 0; i < a->n && i < b->n; i++)
		if (a->list[i].content != b->list[i].content ||
		    a->list[i].modified != b->list[i].modified ||
		    strcmp(a->list[i].path, b->list[i].path) != 0)
			return false;
	return a->n == b->n;
}

int files_reload(struct files *files, struct files *before, const char *root)
{
	int err;

	*files = (struct files){.types = before->types, .before = before};
	if (list_open(files) < 0)
		return refuse_root(files, root, -ENOMEM);
	err = load_files(files, root);
	files->before = NULL;
	if (err < 0 || are_same(files, before)) {
		files->types = (struct types){0};
		files_free(files);
		return err == 0 || files->error[0]
			       ? err
			       : refuse_root(files, root, err);
	}
	before->types = (struct types){0};
	return 1;
}

void files_free(struct files *files)
{
	for (unsigned i = 0; i < files->n; i++) {
		struct file *file = &files->list[i];

		content_drop(file->content);
		free(file->gzip);
		free(file->brotli);
		free(file->location);
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

const struct file *files_find_folder(const struct files *files,
				     const char *path, size_t len)
{
	char folder[FILES_PATH_MAX];

	if (len + 1 >= sizeof(folder))
		return NULL;
	memcpy(folder, path, len);
	folder[len] = '/';
	return files_find(files, folder, len + 1);
}

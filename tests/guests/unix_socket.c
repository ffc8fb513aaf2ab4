/* A socket with a path is a file: bind makes it, connect probes it. */
#include "guest.h"

#include <sys/socket.h>
#include <sys/un.h>

int main(void)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = "sock"}, absent = {.sun_family = AF_UNIX};
	int server = socket(AF_UNIX, SOCK_STREAM, 0), client = socket(AF_UNIX, SOCK_STREAM, 0);

	strcpy(absent.sun_path, "absent");
	must(bind(server, (struct sockaddr *)&address, sizeof address) == 0 && listen(server, 1) == 0);
	must(connect(client, (struct sockaddr *)&absent, sizeof absent) < 0 && errno == ENOENT);
	must(connect(client, (struct sockaddr *)&address, sizeof address) == 0);
	expect("MISSED", "sock");
	expect("MKNOD", "sock");
	expect("PROBE", "sock");
	expect("MISSED", "absent");
	return 0;
}

/* Families that no network namespace keeps apart are refused; abstract addresses are peers, not files. */
#include "guest.h"

#include <sys/socket.h>
#include <sys/un.h>

int main(void)
{
	struct sockaddr_un name = { .sun_family = AF_UNIX, .sun_path = "\0abstract" };
	int families[] = { AF_VSOCK, AF_ALG, AF_BLUETOOTH, AF_TIPC, AF_XDP };

	for (size_t i = 0; i < sizeof families / sizeof families[0]; i++)
		must(socket(families[i], SOCK_STREAM, 0) < 0 && errno == EAFNOSUPPORT);
	int server = socket(AF_UNIX, SOCK_STREAM, 0), client = socket(AF_UNIX, SOCK_STREAM, 0);
	must(bind(server, (struct sockaddr *)&name, sizeof name) == 0 && listen(server, 1) == 0);
	must(connect(client, (struct sockaddr *)&name, sizeof name) == 0);
	expect("! MKNOD", "abstract");
	return 0;
}

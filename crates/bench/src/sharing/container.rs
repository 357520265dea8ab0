//! This program in a container: namespaces of its own for mounts, processes, users, the network,
//! IPC and names, and of the pool nothing but the service's socket.
//!
//! All of it goes with the process: its mounts are seen by nobody else.

use crate::error::{Result, io};
use std::path::Path;
use std::process::{Command, Stdio};

/// Where the socket is bound in.
pub const SOCKET: &str = "/run/pool";

const UNSHARE: [&str; 10] = [
    "--user",
    "--map-root-user",
    "--mount",
    "--pid",
    "--fork",
    "--kill-child",
    "--net",
    "--ipc",
    "--uts",
    "--",
];

/// Makes a root of what programs need, and the socket; runs the program there. Its words: an empty
/// directory, the socket, the program, and the program's.
const ENTER: &str = r#"
root=$1 socket=$2 program=$3
shift 3
mount -t tmpfs none "$root"
cd "$root"
mkdir -p proc run
for dir in usr lib lib64; do
    if [ -L /$dir ]; then
        cp -P /$dir $dir
    elif [ -d /$dir ]; then
        mkdir $dir
        mount --rbind /$dir $dir
    fi
done
mount -t proc none proc 2>/dev/null || true
touch program run/pool
mount --bind "$program" program
mount --bind "$socket" run/pool
exec chroot . /program "$@"
"#;

/// Why no container can be made; `None` if one can. The directory is empty.
pub fn missing(root: &Path) -> Option<&'static str> {
    let mut probe = Command::new("unshare");
    probe.args(UNSHARE).args(["mount", "-t", "tmpfs", "none"]).arg(root);
    let made = probe.stdout(Stdio::null()).stderr(Stdio::null()).status();
    let why = "no namespaces of its own can be made here, by unshare(1)";
    (!made.is_ok_and(|status| status.success())).then_some(why)
}

/// What starts this program in one, in an empty directory.
pub fn command(root: &Path, socket: &Path) -> Result<Command> {
    let program = Path::new("/proc/self/exe");
    let program = std::fs::read_link(program).map_err(io(program))?;
    let mut command = Command::new("unshare");
    command.args(UNSHARE).args(["sh", "-ec", ENTER, "sh"]).args([root, socket, &program]);
    Ok(command)
}

package mysqld

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

const (
	mariadb = "mariadb"
	mysql   = "mysql"
)

// ErrNotInstalled is in the error of Start when there is no server program; the error's text says what to install.
var ErrNotInstalled = errors.New("no database server program")

// program is a server executable.
type program struct {
	path   string
	flavor string
}

// places returns the folders, besides PATH, where packages put the server. deploy/local/install.sh looks in the same.
func places() []string {
	dirs := []string{"/usr/sbin", "/usr/local/sbin", "/usr/libexec", "/usr/local/mysql/bin"}
	for _, brew := range []string{"/opt/homebrew", "/usr/local", "/home/linuxbrew/.linuxbrew"} {
		for _, formula := range []string{"mariadb", "mariadb@*", "mysql", "mysql@*"} {
			found, _ := filepath.Glob(filepath.Join(brew, "opt", formula, "bin")) // only a bad pattern is an error
			dirs = append(dirs, found...)
		}
	}
	return dirs
}

// findProgram returns the server named by ORBIT_MYSQLD, or else the first one on PATH or in others, MariaDB before MySQL.
func findProgram(ctx context.Context, others []string) (program, error) {
	path := os.Getenv("ORBIT_MYSQLD")
	if path != "" {
		if !executable(path) {
			return program{}, fmt.Errorf("mysqld: ORBIT_MYSQLD is set to %s, which is not a program: %w", path, ErrNotInstalled)
		}
	} else {
		path = search(append(filepath.SplitList(os.Getenv("PATH")), others...), "mariadbd", "mysqld")
	}
	if path == "" {
		return program{}, fmt.Errorf("mysqld: %w: neither mariadbd nor mysqld is on PATH or in the usual places; "+
			"install MariaDB 10.11+ or MySQL 8.4+ (Debian, Ubuntu: apt-get install mariadb-server; macOS: brew install mariadb) "+
			"or set ORBIT_MYSQLD to the server program", ErrNotInstalled)
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return program{}, fmt.Errorf("mysqld: find the server program: %w", err)
	}
	out, err := runQuiet(ctx, path, "--no-defaults", "--version")
	if err != nil {
		return program{}, fmt.Errorf("mysqld: ask %s for its version: %w", path, err)
	}
	p := program{path: path, flavor: mysql}
	if strings.Contains(out, "MariaDB") {
		p.flavor = mariadb
	}
	return p, nil
}

// args returns the server's command line. Each setting that differs from both servers' defaults is here.
func (p program) args(o Options, socket string, port int) []string {
	args := []string{
		"--no-defaults", // must be first: nothing of the machine's own configuration applies
		"--datadir=" + filepath.Join(o.Dir, "data"),
		"--tmpdir=" + filepath.Join(o.Dir, "tmp"),
		"--init-file=" + filepath.Join(o.Dir, "init.sql"),
		"--pid-file=" + filepath.Join(o.Dir, "mysqld.pid"),
		"--socket=" + socket,
		"--bind-address=" + loopback,
		fmt.Sprintf("--port=%d", port),
		"--skip-name-resolve",
		"--max-connections=500",
		"--character-set-server=utf8mb4",
		"--collation-server=utf8mb4_bin", // compares byte for byte, so no two keys merge
		"--innodb-flush-log-at-trx-commit=1",
		fmt.Sprintf("--innodb-buffer-pool-size=%dM", o.BufferPoolMB),
	}
	if p.flavor == mariadb {
		args = append(args, "--log-warnings=1")
	} else {
		args = append(args, "--log-error-verbosity=2", "--mysqlx=OFF", "--secure-file-priv=NULL")
	}
	if o.Binlog {
		args = append(args, "--log-bin=binlog", "--server-id=1", "--sync-binlog=1", "--binlog-format=ROW")
	} else {
		args = append(args, "--skip-log-bin")
	}
	return append(append(args, asRoot()...), o.ExtraArgs...)
}

// initialise completes dir: the init file, the temporary folder, and the data when there are none. Data are made under
// another name and then moved, so that a folder left half made is never used.
func (p program) initialise(ctx context.Context, dir string) error {
	data, tmp, flavorFile := filepath.Join(dir, "data"), filepath.Join(dir, "tmp"), filepath.Join(dir, "flavor")
	// Its own: a MariaDB that starts removes the temporary tables of every server with the same tmpdir.
	if err := os.MkdirAll(tmp, 0o700); err != nil {
		return fmt.Errorf("mysqld: make the folder for temporary tables: %w", err)
	}
	// With --skip-name-resolve, root@localhost does not cover TCP. The server runs this file at each start.
	initSQL := "SET sql_log_bin=0;\nCREATE USER IF NOT EXISTS 'root'@'127.0.0.1';\n" +
		"GRANT ALL PRIVILEGES ON *.* TO 'root'@'127.0.0.1' WITH GRANT OPTION;\n"
	if err := os.WriteFile(filepath.Join(dir, "init.sql"), []byte(initSQL), 0o600); err != nil {
		return fmt.Errorf("mysqld: write the init file: %w", err)
	}
	if _, err := os.Stat(data); err == nil {
		was, err := os.ReadFile(flavorFile)
		if err == nil && string(was) != p.flavor {
			return fmt.Errorf("mysqld: %s was made by %s and %s is %s, which cannot read it: set ORBIT_MYSQLD to a %s server, "+
				"or use another folder", dir, was, p.path, p.flavor, was)
		}
		return nil
	} else if !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("mysqld: look at the data folder: %w", err)
	}

	fresh := data + ".new"
	if err := os.RemoveAll(fresh); err != nil {
		return fmt.Errorf("mysqld: remove a half-made data folder: %w", err)
	}
	command := []string{p.path, "--no-defaults", "--initialize-insecure", "--datadir=" + fresh, "--tmpdir=" + tmp, "--secure-file-priv=NULL"}
	if p.flavor == mariadb {
		script := p.installScript()
		if script == "" {
			return fmt.Errorf("mysqld: mariadb-install-db was not found beside %s nor on PATH: %w", p.path, ErrNotInstalled)
		}
		command = []string{
			script, "--no-defaults", "--basedir=" + filepath.Dir(filepath.Dir(script)), "--datadir=" + fresh, "--tmpdir=" + tmp,
			"--auth-root-authentication-method=normal", "--skip-test-db",
		}
	}
	if out, err := runQuiet(ctx, append(command, asRoot()...)...); err != nil {
		return fmt.Errorf("mysqld: initialise %s with %s: %w\n%s", dir, command[0], err, firstLines(out))
	}
	if err := os.WriteFile(flavorFile, []byte(p.flavor), 0o600); err != nil {
		return fmt.Errorf("mysqld: note which server made the data: %w", err)
	}
	if err := os.Rename(fresh, data); err != nil {
		return fmt.Errorf("mysqld: move the new data folder to its place: %w", err)
	}
	return nil
}

// installScript returns the program that makes MariaDB's system tables, the one of the same installation first.
func (p program) installScript() string {
	bin := filepath.Dir(p.path)
	root := filepath.Dir(bin)
	dirs := append([]string{bin, filepath.Join(root, "bin"), filepath.Join(root, "scripts")}, filepath.SplitList(os.Getenv("PATH"))...)
	return search(dirs, "mariadb-install-db", "mysql_install_db")
}

// asRoot returns the argument without which both servers refuse to run as root.
func asRoot() []string {
	if os.Geteuid() == 0 {
		return []string{"--user=root"}
	}
	return nil
}

// search returns the first program called by one of names in dirs, trying all of dirs for one name before the next.
func search(dirs []string, names ...string) string {
	for _, name := range names {
		for _, dir := range dirs {
			if path := filepath.Join(dir, name); executable(path) {
				return path
			}
		}
	}
	return ""
}

func executable(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}

// runQuiet runs a command to its end and returns all that it wrote. When ctx ends, its children die too.
func runQuiet(ctx context.Context, command ...string) (string, error) {
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	return string(out), err
}

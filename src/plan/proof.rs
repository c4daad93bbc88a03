//! What a careful colleague would say of a command line whose exit codes are taken as proof
//! (EXE-6). Warnings only: they change no outcome.
use super::verdict::NotExecuted;

/// The letters of curl's short options that take a value: in `-of` the `f` is a file's name.
const CURL_TAKES_VALUE: &[u8] = b"AbcCdDeEFhHKmoPQrtTuUwxXyYz";
/// The same of psql.
const PSQL_TAKES_VALUE: &[u8] = b"cdfFhLopPRTUv";
/// The same of systemd-run.
const SYSTEMD_RUN_TAKES_VALUE: &[u8] = b"HMpuE";

/// What is to be said of running `words` with these declared codes, a line each.
#[must_use]
pub fn warnings(words: &[&[u8]], declared: &NotExecuted) -> Vec<String> {
    let borrowed = declared.borrowed().into_iter().map(|(code, why)| {
        format!("--not-executed {code} is taken as proof that nothing happened, but {why}")
    });
    borrowed.chain(of_program(words, declared)).collect()
}

fn of_program(words: &[&[u8]], declared: &NotExecuted) -> Option<String> {
    let (program, args) = words.split_first()?;
    let name = program.rsplit(|byte| *byte == b'/').next()?;
    match name {
        b"curl" => of_curl(args, declared),
        b"psql" => of_psql(args),
        b"systemd-run" => of_systemd_run(args),
        b"docker" | b"podman" => of_containers(name, args),
        _ => None,
    }
}

fn of_curl(args: &[&[u8]], declared: &NotExecuted) -> Option<String> {
    let has = |long: &[&[u8]], short| has(args, long, short, CURL_TAKES_VALUE);
    let goes_on = has(&[b"--location", b"--location-trusted", b"--retry"], Some(b'L'));
    if goes_on && declared.has(7) {
        return Some(
            "curl with --location or --retry exits 7 also when a later connection fails: an earlier \
             request may have been taken, so 7 proves nothing here"
                .to_owned(),
        );
    }
    let fails = has(&[b"--fail", b"--fail-with-body"], Some(b'f'));
    (!fails).then(|| {
        "curl without --fail exits 0 also when the server answers with an error: this 0 proves nothing"
            .to_owned()
    })
}

fn of_psql(args: &[&[u8]]) -> Option<String> {
    let reads_file = has(args, &[b"--file"], Some(b'f'), PSQL_TAKES_VALUE);
    let stops = args.iter().any(|arg| contains(arg, b"ON_ERROR_STOP"));
    (reads_file && !stops).then(|| {
        "psql -f without -v ON_ERROR_STOP=1 exits 0 also when a statement failed: this 0 proves nothing"
            .to_owned()
    })
}

fn of_systemd_run(args: &[&[u8]]) -> Option<String> {
    let long: &[&[u8]] = &[b"--wait", b"--scope", b"--pty", b"--pipe", b"--shell"];
    let waits = [Some(b't'), Some(b'P'), Some(b'S')]
        .into_iter()
        .any(|short| has(args, long, short, SYSTEMD_RUN_TAKES_VALUE));
    (!waits).then(|| {
        "systemd-run without --wait exits 0 as soon as the unit is queued: this 0 proves nothing"
            .to_owned()
    })
}

fn of_containers(name: &[u8], args: &[&[u8]]) -> Option<String> {
    let (verb, args) = args.split_first()?;
    let detaches = *verb == b"run" && has(args, &[b"--detach"], Some(b'd'), b"acehlmpuvw");
    detaches.then(|| {
        let name = String::from_utf8_lossy(name);
        format!(
            "{name} run --detach exits 0 as soon as the container was started: this 0 proves nothing"
        )
    })
}

/// Whether an option is among `args`: one of the `long` ones (also `--name=value`), or the `short`
/// letter, alone or in a cluster, but not within the value of a letter that `takes_value`.
fn has(args: &[&[u8]], long: &[&[u8]], short: Option<u8>, takes_value: &[u8]) -> bool {
    args.iter().take_while(|arg| **arg != b"--").any(|arg| {
        if arg.starts_with(b"--") {
            let name = arg.split(|byte| *byte == b'=').next().unwrap_or(arg);
            return long.contains(&name);
        }
        let Some(letters) = arg.strip_prefix(b"-") else {
            return false;
        };
        for letter in letters {
            if Some(*letter) == short {
                return true;
            }
            if takes_value.contains(letter) {
                return false;
            }
        }
        false
    })
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(line: &str, codes: &str) -> Vec<String> {
        let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        let declared = match codes {
            "" => NotExecuted::default(),
            codes => NotExecuted::parse(codes).unwrap(),
        };
        warnings(&words, &declared)
    }

    #[test]
    fn commands_whose_success_proves_nothing_are_named() {
        // EXE-6, case 62
        for line in [
            "curl https://h/pay",
            "/usr/bin/curl -sS -d f https://h",
            "curl -o f https://h",
            "curl -of https://h",
            "psql -f m.sql",
            "psql -f migrations/0001-accounts.sql",
            "psql -Xqf m.sql",
            "psql --file=m.sql",
            "systemd-run ./x",
            "systemd-run -u w ./x",
            "docker run -d img",
            "podman run --detach=true img",
        ] {
            assert_eq!(said(line, "").len(), 1, "{line}");
        }
        for line in [
            "curl -f https://h",
            "curl -sSf https://h",
            "curl --fail-with-body https://h",
            "psql -v ON_ERROR_STOP=1 -f m.sql",
            "psql --set=ON_ERROR_STOP=on -f m.sql",
            "psql -c f",
            "systemd-run --wait ./x",
            "systemd-run -t ./x",
            "systemd-run --scope ./x",
            "docker run img",
            "docker run --rm img cmd",
            "docker ps -d",
            "./refund.sh -f",
            "true",
        ] {
            assert_eq!(said(line, ""), [""; 0], "{line}");
        }
    }

    #[test]
    fn a_connection_that_failed_proves_nothing_after_another_that_did_not() {
        // EXE-6, case 62
        assert!(said("curl -f -L https://h", "7")[0].contains("7 proves nothing"));
        assert!(said("curl -f --retry 3 https://h", "6,7")[0].contains("7 proves nothing"));
        assert_eq!(said("curl -f https://h", "7"), [""; 0]);
        assert_eq!(said("curl -f -L https://h", "6"), [""; 0]);
    }

    #[test]
    fn borrowed_codes_are_named_with_the_reason() {
        // EXE-6, case 10
        let said = said("ssh h ./x", "255,3");
        assert_eq!(said.len(), 1);
        assert!(
            said[0].starts_with("--not-executed 255") && said[0].contains("remote command ran")
        );
    }
}

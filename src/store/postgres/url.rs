//! The grammar of `postgres://[user[:password]@][host[:port],...][/dbname][?name=value&...]`.
//!
//! It is libpq's, but for two things. A second `@` is refused: in nine of ten cases it belongs to a
//! password that was not percent-encoded, and the rest of that password would be looked up as a
//! host name and shown in errors. And a parameter given twice after the `?` with two values is refused, where
//! libpq takes the last: a store must not depend on which of two servers comes last. A parameter
//! after the `?` wins over the part before it (`postgres://localhost/db?host=/run/pg`), as in libpq.
use super::params::ConninfoError;

const SCHEMES: [&str; 2] = ["postgresql://", "postgres://"];

/// A URL taken apart.
pub struct Parts {
    /// Parameters by name. Of two with one name the first counts.
    pub pairs: Vec<(String, String)>,
}

/// Whether a store's URL names a Postgres server.
#[must_use]
pub fn is_postgres(url: &str) -> bool {
    strip(url).is_some()
}

fn strip(url: &str) -> Option<&str> {
    SCHEMES.iter().find_map(|scheme| url.strip_prefix(scheme))
}

/// Takes a URL apart.
///
/// # Errors
/// [`ConninfoError::Url`], which shows nothing of the URL.
pub fn parse(url: &str) -> Result<Parts, ConninfoError> {
    let Some(rest) = strip(url) else {
        return Err(ConninfoError::Url("it starts with neither postgres:// nor postgresql://"));
    };
    let shape = Shape::of(rest)?;
    let mut pairs = Vec::new();
    if let Some(user) = shape.user {
        push(&mut pairs, "user", user)?;
    }
    if let Some(password) = shape.password {
        push(&mut pairs, "password", password)?;
    }
    let (hosts, ports) = hosts(shape.hosts)?;
    push(&mut pairs, "host", &hosts)?;
    push(&mut pairs, "port", &ports)?;
    if let Some(dbname) = shape.dbname {
        push(&mut pairs, "dbname", dbname)?;
    }
    let mut query = Vec::new();
    for pair in shape.query.unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
        let Some((name, value)) = pair.split_once('=') else {
            return Err(ConninfoError::Url("a parameter after the ? has no ="));
        };
        if value.contains('=') {
            return Err(ConninfoError::Url("a parameter after the ? has a second =: write %3D"));
        }
        let (name, value) = (decode(name)?, decode(value)?);
        if name.is_empty() || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') {
            return Err(ConninfoError::Url("a parameter after the ? has no name"));
        }
        // The way JDBC spells it, which libpq takes too.
        if name == "ssl" && value == "true" {
            query.push(("sslmode".into(), "require".into()));
        } else {
            query.push((name, value));
        }
    }
    for (at, (name, value)) in query.iter().enumerate() {
        if query.iter().skip(at + 1).any(|(other, another)| other == name && another != value) {
            return Err(ConninfoError::Url("a parameter is given twice, with two values"));
        }
    }
    query.append(&mut pairs);
    Ok(Parts { pairs: query })
}

/// An empty part counts as not given, so that the environment may fill it.
fn push(pairs: &mut Vec<(String, String)>, name: &str, raw: &str) -> Result<(), ConninfoError> {
    if raw.chars().any(|c| c != ',') {
        pairs.push((name.into(), decode(raw)?));
    } else if name == "host" && raw.len() > 1 {
        pairs.push((name.into(), raw.into()));
    }
    Ok(())
}

struct Shape<'a> {
    user: Option<&'a str>,
    password: Option<&'a str>,
    hosts: &'a str,
    dbname: Option<&'a str>,
    query: Option<&'a str>,
}

impl<'a> Shape<'a> {
    fn of(rest: &'a str) -> Result<Self, ConninfoError> {
        let authority_ends = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, tail) = rest.split_at(authority_ends);
        if tail.contains('@') || authority.matches('@').count() > 1 {
            return Err(ConninfoError::Url(
                "it has an @ where none can be. In a user, password or value write %40 for @, %2F for /, %3F for ?",
            ));
        }
        let (user, password, hosts) = match authority.split_once('@') {
            None => (None, None, authority),
            Some((login, hosts)) => match login.split_once(':') {
                None => (Some(login), None, hosts),
                Some((user, password)) => (Some(user), Some(password), hosts),
            },
        };
        let (path, query) = match tail.split_once('?') {
            None => (tail, None),
            Some((path, query)) => (path, Some(query)),
        };
        Ok(Self { user, password, hosts, dbname: path.strip_prefix('/'), query })
    }
}

/// `a:1,[::1]:2,c` as libpq's two lists, `a,::1,c` and `1,2,`.
fn hosts(raw: &str) -> Result<(String, String), ConninfoError> {
    let mut names = Vec::new();
    let mut ports = Vec::new();
    for one in raw.split(',') {
        let (name, port) = match one.strip_prefix('[') {
            Some(literal) => {
                let Some((name, after)) = literal.split_once(']') else {
                    return Err(ConninfoError::Url("an IPv6 address has no closing ]"));
                };
                if name.is_empty() {
                    return Err(ConninfoError::Url("an IPv6 address is empty"));
                }
                match after.strip_prefix(':') {
                    Some(port) => (name, port),
                    None if after.is_empty() => (name, ""),
                    None => return Err(ConninfoError::Url("after the ] comes no :port")),
                }
            }
            None => one.split_once(':').unwrap_or((one, "")),
        };
        if port.contains(':') {
            return Err(ConninfoError::Url("an IPv6 address needs [ and ] around it"));
        }
        if !port.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(ConninfoError::Url("a port is not a number"));
        }
        names.push(name);
        ports.push(port);
    }
    Ok((names.join(","), ports.join(",")))
}

fn decode(raw: &str) -> Result<String, ConninfoError> {
    let mut bytes = Vec::with_capacity(raw.len());
    let mut left = raw.bytes();
    while let Some(byte) = left.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let mut digit = || left.next().and_then(|byte| char::from(byte).to_digit(16));
        let (Some(high), Some(low)) = (digit(), digit()) else {
            return Err(ConninfoError::Url("a % is not followed by two hex digits: write %25"));
        };
        match u8::try_from(high * 16 + low) {
            Ok(0) | Err(_) => return Err(ConninfoError::Url("%00 cannot be")),
            Ok(byte) => bytes.push(byte),
        }
    }
    String::from_utf8(bytes).map_err(|_| ConninfoError::Url("a decoded part is not UTF-8"))
}

/// The URL with every password cut out, for commands that are printed to be typed again. What
/// cannot be read loses all that might be one.
#[must_use]
pub fn redact(url: &str) -> String {
    let Some(rest) = strip(url) else { return "postgres://...".into() };
    let scheme = url.get(..url.len() - rest.len()).unwrap_or("postgres://");
    let Ok(shape) = Shape::of(rest) else {
        let login = rest.split([':', '@']).next().unwrap_or_default();
        return format!("{scheme}{login}@...");
    };
    let mut shown = scheme.to_owned();
    if let Some(user) = shape.user {
        shown.push_str(user);
        shown.push('@');
    }
    shown.push_str(shape.hosts);
    if let Some(dbname) = shape.dbname {
        shown.push('/');
        shown.push_str(dbname);
    }
    let kept: Vec<&str> = shape
        .query
        .unwrap_or_default()
        .split('&')
        .filter(|pair| !pair.is_empty() && !is_secret(pair))
        .collect();
    if !kept.is_empty() {
        shown.push('?');
        shown.push_str(&kept.join("&"));
    }
    shown
}

/// A pair is kept only if its name is plain to read and is no password's.
fn is_secret(pair: &str) -> bool {
    let name = pair.split('=').next().unwrap_or_default();
    decode(name).map_or(true, |name| name.to_ascii_lowercase().contains("password"))
}

use super::*;
use std::collections::BTreeSet;
use std::path::Path;

/// The files with their names, the first page among them.
fn files() -> impl Iterator<Item = (&'static str, &'static str)> {
    FILES.iter().map(|file| (file.path, file.text)).chain([("/index.html", INDEX)])
}

fn respond_to(path: &str, text: &'static str, request: &HeaderMap) -> Response {
    respond(path_type(path), text, entity_tag(text), request)
}

/// The strings in quotes of one kind that follow `before` in `text`.
fn quoted_after<'a>(text: &'a str, before: &str, quote: char) -> impl Iterator<Item = &'a str> {
    let start = format!("{before}{quote}");
    let starts: Vec<usize> = text.match_indices(&start).map(|(at, _)| at + start.len()).collect();
    starts.into_iter().filter_map(move |at| text[at..].split(quote).next())
}

#[test]
fn every_file_of_the_folder_is_served() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/page");
    let names =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let there: BTreeSet<String> = names
        .filter(|name| name != "tests.rs" && name != "index.html")
        .map(|n| format!("/page/{n}"))
        .collect();
    let served: BTreeSet<String> = FILES.iter().map(|file| file.path.to_owned()).collect();
    assert_eq!(there, served);
}

#[test]
fn nothing_is_fetched_from_other_hosts() {
    for (path, text) in files() {
        // `//host` is a URL of the page's own scheme.
        for scheme in ["http://", "https://", "//", "data:", "blob:", "ws:", "wss:"] {
            for before in
                ["src=", "href=", "action=", "fetch(", "import(", "import ", "from ", "url(", "@import "]
            {
                for quote in ["\"", "'", "`", ""] {
                    let found = text.contains(&format!("{before}{quote}{scheme}"));
                    assert!(!found, "{path}: {before}{quote}{scheme}");
                }
            }
        }
        for name in ["XMLHttpRequest", "WebSocket", "EventSource", "sendBeacon", "importScripts", "RTCPeer"] {
            assert!(!text.contains(name), "{path}: {name}");
        }
    }
}

#[test]
fn text_never_becomes_markup_or_code() {
    for (path, text) in files() {
        for name in [
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "DOMParser",
            "createContextualFragment",
            "setHTMLUnsafe",
            "srcdoc",
            "eval(",
            "new Function",
            "javascript:",
        ] {
            assert!(!text.contains(name), "{path}: {name}");
        }
    }
    // The policy refuses scripts and styles inside the first page too.
    assert!(!INDEX.contains("<style") && !INDEX.contains(" style=") && !INDEX.contains(" onclick="));
    assert!(INDEX.match_indices("<script").all(|(at, _)| INDEX[at..].starts_with("<script src=")
        || INDEX[at..].starts_with("<script type=\"module\" src=")));
}

#[test]
fn references_lead_to_files() {
    let served: BTreeSet<&str> = FILES.iter().map(|file| file.path).collect();
    let mut used = BTreeSet::new();
    for (path, text) in files() {
        for name in quoted_after(text, "from ", '"').chain(quoted_after(text, "import ", '"')) {
            used.insert(format!(
                "/page/{}",
                name.strip_prefix("./").unwrap_or_else(|| panic!("{path}: {name}"))
            ));
        }
    }
    for name in quoted_after(INDEX, "href=", '"').chain(quoted_after(INDEX, "src=", '"')) {
        if !name.starts_with('#') {
            used.insert(format!("/{name}"));
        }
    }
    let missing: Vec<_> = used.iter().filter(|name| !served.contains(name.as_str())).collect();
    assert!(missing.is_empty(), "{missing:?}");
    let unused: Vec<_> = served.iter().filter(|name| !used.contains(**name)).collect();
    assert!(unused.is_empty(), "{unused:?}");
}

#[test]
fn the_elements_that_scripts_use_exist() {
    for (path, text) in files() {
        for id in quoted_after(text, "byId(", '"') {
            assert!(INDEX.contains(&format!("id=\"{id}\"")), "{path}: {id}");
        }
    }
}

#[test]
fn headers_are_strict() {
    for (path, text) in files() {
        let response = respond_to(path, text, &HeaderMap::new());
        assert_eq!(response.status(), StatusCode::OK);
        let headers = response.headers();
        let policy = headers[CONTENT_SECURITY_POLICY].to_str().unwrap();
        assert!(policy.starts_with("default-src 'none';"), "{policy}");
        for allowed in ["unsafe", "http", "*", "data:", "blob:"] {
            assert!(!policy.contains(allowed), "{policy}");
        }
        for needed in
            ["base-uri 'none'", "frame-ancestors 'none'", "form-action 'none'", "require-trusted-types-for"]
        {
            assert!(policy.contains(needed), "{policy}");
        }
        assert_eq!(headers[X_CONTENT_TYPE_OPTIONS], "nosniff");
        assert_eq!(headers[REFERRER_POLICY], "no-referrer");
        assert_eq!(headers[CORP], "same-origin");
        assert_eq!(headers[CACHE_CONTROL], "no-cache");
    }
}

#[test]
fn content_types_follow_the_names() {
    for (path, kind) in [
        ("/", "text/html; charset=utf-8"),
        ("/index.html", "text/html; charset=utf-8"),
        ("/page/app.js", "text/javascript; charset=utf-8"),
        ("/page/style.css", "text/css; charset=utf-8"),
        ("/page/icon.svg", "image/svg+xml"),
    ] {
        assert_eq!(respond_to(path, "", &HeaderMap::new()).headers()[CONTENT_TYPE], kind);
    }
}

#[test]
fn a_known_version_is_not_sent_again() {
    let tag = entity_tag(INDEX);
    let mut request = HeaderMap::new();
    for (known, status) in [
        (tag.to_str().unwrap().to_owned(), StatusCode::NOT_MODIFIED),
        (format!("\"other\", W/{}", tag.to_str().unwrap()), StatusCode::NOT_MODIFIED),
        ("\"other\"".to_owned(), StatusCode::OK),
        (String::new(), StatusCode::OK),
    ] {
        request.insert(IF_NONE_MATCH, HeaderValue::try_from(&known).unwrap());
        let response = respond_to("/", INDEX, &request);
        assert_eq!(response.status(), status, "{known}");
        assert_eq!(response.headers()[ETAG], tag);
    }
    assert_ne!(entity_tag("one"), entity_tag("two"));
}

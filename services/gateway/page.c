/* page.c - see page.h */
#include "page.h"
#include "auth.h"
#include "base/buf.h"
#include "conn.h"
#include "metrics.h"
#include "reply.h"
#include "schema/openapi.h"
#include "ws.h"
#include <string.h>

#define TEXT "text/plain; charset=utf-8"

static struct ab_buf openapi;

/* Reads the document beside it and needs nothing else from anywhere. */
static const char docs[] =
    "<!doctype html><html lang=en><head><meta charset=utf-8><title>Abies API</title>"
    "<meta name=viewport content='width=device-width'><style>"
    "body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;"
    "color:#222}"
    "h1{font-size:1.5rem}h2{font-size:1.1rem;margin:2rem 0 .5rem}"
    "details{border:1px solid #ddd;border-radius:4px;margin:.3rem 0}"
    "summary{padding:.4rem .7rem;cursor:pointer}pre{margin:0;padding:.7rem;overflow:auto;"
    "background:#f6f6f6;font-size:13px}"
    "b{display:inline-block;width:4.5rem;font-family:monospace}code{font-weight:600}"
    "span{color:#666;margin-left:.8rem}</style></head><body><h1>Abies API</h1>"
    "<p>From <a href=/openapi.json>/openapi.json</a>.</p><main></main><script>"
    "fetch('/openapi.json').then(r=>r.json()).then(d=>{const m=document.querySelector('main');"
    "const e=(t,x)=>{const n=document.createElement(t);if(x!==undefined)n.textContent=x;return n};"
    "let last='';for(const p of Object.keys(d.paths).sort()){const g=p.split('/')[1];"
    "if(g!==last){m.append(e('h2','/'+g));last=g}"
    "for(const k in d.paths[p]){const o=d.paths[p][k],x=e('details'),s=e('summary');"
    "s.append(e('b',k.toUpperCase()),e('code',p),e('span',o.summary||''));"
    "x.append(s,e('pre',JSON.stringify(o,null,2)));m.append(x)}}"
    "m.append(e('h2','Schemas'));const c=(d.components||{}).schemas||{};"
    "for(const k of Object.keys(c).sort()){const "
    "x=e('details'),s=e('summary');s.append(e('code',k));"
    "x.append(s,e('pre',JSON.stringify(c[k],null,2)));m.append(x)}})</script></body></html>\n";

/* It goes back to the address that it came from, with ?user_code=. */
static const char user_code[] =
    "<!doctype html><html lang=en><head><meta charset=utf-8><title>Abies: sign in a device</title>"
    "<meta name=viewport content='width=device-width'><style>"
    "body{font:17px/1.5 system-ui,sans-serif;max-width:30rem;margin:4rem auto;padding:0 1rem;"
    "color:#222}input,button{font:inherit;padding:.4rem .6rem}"
    "input{font-family:monospace;text-transform:uppercase;letter-spacing:.1em;width:10em}"
    "</style></head><body><h1>Sign in a device</h1>"
    "<p>Type the code that the device or the terminal shows. Only do so if you have started this "
    "log-in yourself: whoever made the code will act in your name.</p>"
    "<form method=get><label>Code <input name=user_code required maxlength=16 autocomplete=off "
    "autofocus placeholder=XXXX-XXXX></label> <button>Continue</button></form></body></html>\n";

void page_user_code(struct conn *c)
{
    reply_body(c, 200, "text/html; charset=utf-8", user_code, sizeof(user_code) - 1,
               "content-security-policy: default-src 'none'; style-src 'unsafe-inline'; "
               "frame-ancestors 'none'\r\n");
}

int page_init(struct ab_error *err)
{
    ab_openapi(&openapi, AB_VERSION);
    if (openapi.failed)
        return ab_fail(err, AB_EINTERNAL, "the API description cannot be made: no memory");
    return 0;
}

void page_free(void)
{
    ab_buf_free(&openapi);
}

static void serve_ready(struct conn *c)
{
    struct ab_buf why = {0};

    if (metrics_ready(&why))
        reply_body(c, 200, TEXT, "ok\n", 3, NULL);
    else
        reply_body(c, 503, TEXT, why.data, why.len, "retry-after: 1\r\n");
    ab_buf_free(&why);
}

static void serve_metrics(struct conn *c)
{
    struct ab_buf text = {0};

    metrics_render(&text);
    reply_body(c, 200, "text/plain; version=0.0.4; charset=utf-8", text.data, text.len, NULL);
    ab_buf_free(&text);
}

void page_serve(struct conn *c)
{
    static const char root[] = "{\"name\":\"abies\",\"version\":\"" AB_VERSION "\"}";

    switch (c->x.match.page) {
    case PAGE_ROOT:
        reply_body(c, 200, "application/json", root, sizeof(root) - 1, NULL);
        break;
    case PAGE_HEALTHZ:
        reply_body(c, 200, TEXT, "ok\n", 3, NULL);
        break;
    case PAGE_READYZ:
        serve_ready(c);
        break;
    case PAGE_METRICS:
        serve_metrics(c);
        break;
    case PAGE_OPENAPI:
        reply_body(c, 200, "application/json", openapi.data, openapi.len, NULL);
        break;
    case PAGE_DOCS:
        reply_body(c, 200, "text/html; charset=utf-8", docs, sizeof(docs) - 1,
                   "content-security-policy: default-src 'self' 'unsafe-inline'\r\n");
        break;
    case PAGE_SUBSCRIBE_USER:
    case PAGE_EVENTS_STREAM:
        ws_upgrade(c);
        break;
    default:
        reply_text(c, 404, "Not Found", NULL);
        break;
    }
}

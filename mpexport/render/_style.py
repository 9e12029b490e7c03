"""The style of the HTML report: light and dark, from a telephone's width on, and on paper."""

CSS = """
:root{color-scheme:light dark;--page:#f4f5f7;--card:#fff;--ink:#1b1f27;--soft:#596273;
--line:#dfe3ea;
--grid:#e8ebf0;--candidate:#2459d6;--bulk:#9db8f5;--trained:#b25a06;--hatch:#e8b98a;
--rounded:#6b7280;
--pass:#13703f;--pass-bg:#e3f4ea;--fail:#b3213d;--fail-bg:#fce8ec;--open:#7a5200;--open-bg:#fdf1d3}
@media (prefers-color-scheme:dark){:root{--page:#101319;--card:#191e27;--ink:#e8ebf1;--soft:#a0aabb;
--line:#2d3442;--grid:#252b37;--candidate:#7fa9ff;--bulk:#36559c;--trained:#f2a65e;--hatch:#7a4d20;
--rounded:#9aa3b2;--pass:#6bd79c;--pass-bg:#123524;--fail:#ff8c9d;--fail-bg:#431923;--open:#f0c55c;
--open-bg:#3c2f0d}}
*{box-sizing:border-box}
body{margin:0;background:var(--page);color:var(--ink);font:15px/1.5 system-ui,-apple-system,
"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif}
main{max-width:1120px;margin:0 auto;padding:28px 24px 40px}
h1,h2,h3,p{margin:0}
h1{font-size:13px;font-weight:600;letter-spacing:.04em;color:var(--soft)}
h2{font-size:19px;line-height:1.3}
h3{font-size:14px;margin:26px 0 8px}
code,.mono{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,"Liberation Mono",monospace;
font-size:.92em}
bdi,code,td,dd,li,p{overflow-wrap:anywhere}
a{color:inherit}
.hero{border-radius:14px;padding:22px 26px;margin:14px 0 24px;border:1px solid;display:flex;
gap:20px;
align-items:center}
.hero .sign{font-size:30px;line-height:1;width:60px;height:60px;border-radius:50%;display:grid;
place-items:center;flex:none;color:var(--card);font-weight:700}
.hero strong{display:block;font-size:30px;line-height:1.15;letter-spacing:.01em}
.hero p{color:var(--ink)}
.hero ul{margin:8px 0 0;padding-left:18px;color:var(--ink)}
.PASS{--tone:var(--pass);--tint:var(--pass-bg)}
.FAIL,.ERROR{--tone:var(--fail);--tint:var(--fail-bg)}
.INCONCLUSIVE{--tone:var(--open);--tint:var(--open-bg)}
.hero{background:var(--tint);border-color:var(--tone);color:var(--tone)}
.hero .sign{background:var(--tone)}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(150px,1fr));gap:12px;margin:0}
.tiles div{background:var(--card);border:1px solid var(--line);border-radius:10px;padding:11px 15px}
.card .tiles div{background:var(--page)}
.tiles dt{font-size:12px;color:var(--soft)}
.tiles dd{margin:1px 0 0;font-size:19px;font-weight:600;font-variant-numeric:tabular-nums}
.tiles dd.small{font-size:14px;font-weight:500}
.tiles small{display:block;font-size:12px;font-weight:400;color:var(--soft)}
.card{background:var(--card);border:1px solid var(--line);border-radius:14px;padding:22px 26px 24px;
margin-top:22px}
.card>header{display:flex;gap:12px;justify-content:space-between;align-items:flex-start;
margin-bottom:16px}
.card header p{color:var(--soft);font-size:13px;margin-top:3px}
.pill{display:inline-flex;gap:6px;align-items:center;white-space:nowrap;border-radius:99px;
padding:2px 11px;font-size:13px;font-weight:600;background:var(--tint);color:var(--tone)}
.why{border-left:3px solid var(--tone);background:var(--tint);border-radius:0 8px 8px 0;
padding:9px 14px;margin:14px 0 0;list-style:none}
.why li+li{margin-top:5px}
.legend{display:flex;flex-wrap:wrap;gap:4px 18px;font-size:12.5px;color:var(--soft);
margin:2px 0 6px;
padding:0;list-style:none}
.legend li{display:flex;align-items:center;gap:6px}
.legend svg{width:26px;height:16px;flex:none;overflow:visible}
.plot{display:block;overflow:hidden}
.plot text{fill:var(--soft);font-size:11.5px}
.plot .name{fill:var(--ink);font-size:12.5px;font-weight:600}
.grid{stroke:var(--grid)}.axis{stroke:var(--line)}.rail{stroke:var(--line);stroke-width:1.5}
.tail{stroke:var(--candidate);stroke-width:2}.bulk{fill:var(--bulk)}
.mark{stroke:var(--card);stroke-width:1.5}
.mark.candidate{fill:var(--candidate)}
.mark.trained{fill:var(--trained)}
.mark.rounded{fill:var(--card);stroke:var(--rounded);stroke-width:2}
.bar.candidate{fill:var(--candidate)}
.bar.trained{fill:url(#hatched);stroke:var(--trained)}
.hatch{fill:var(--card)}.hatch-line{stroke:var(--trained);stroke-width:1.6;opacity:.65}
.plots{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,440px),1fr));
gap:16px 28px}
.plots figure{margin:0;min-width:0}
figcaption{font-size:13px;margin-bottom:4px;display:flex;gap:10px;justify-content:space-between}
figcaption bdi{font-weight:600}
.scroll{overflow-x:auto;border:1px solid var(--line);border-radius:10px}
.scroll:focus-visible{outline:2px solid var(--candidate);outline-offset:2px}
table{border-collapse:collapse;width:100%;font-size:13px;font-variant-numeric:tabular-nums}
th,td{padding:7px 10px;text-align:left;border-top:1px solid var(--line);vertical-align:top}
thead th{border-top:0;font-size:12px;font-weight:600;color:var(--soft);white-space:nowrap}
td.n,th.n{text-align:right;white-space:nowrap}
td.name{min-width:110px;font-weight:600}
td.wide{min-width:150px}td .mono{white-space:nowrap}
td small{display:block;color:var(--soft)}
details{margin-top:18px}
summary{cursor:pointer;font-size:14px;font-weight:600}
details dl{display:grid;grid-template-columns:minmax(110px,max-content) 1fr;gap:3px 18px;
margin:10px 0 0;font-size:13px}
details dt{color:var(--soft);overflow-wrap:anywhere}
details dd{margin:0}
.note{color:var(--soft);font-size:13px;margin-top:8px}
footer{color:var(--soft);font-size:12.5px;margin-top:26px}
.defs{position:absolute;width:0;height:0}
@media (max-width:640px){main{padding:18px 14px 28px}.hero{padding:16px;gap:14px}
.hero .sign{width:44px;height:44px;font-size:22px}.hero strong{font-size:24px}
.card{padding:16px 14px}
.tiles{grid-template-columns:repeat(2,minmax(0,1fr));gap:8px}.tiles div{padding:9px 11px}
details dl{grid-template-columns:1fr;gap:0}details dd{margin-bottom:6px}}
@media print{.card{break-inside:avoid}body{background:none}}
""".strip()

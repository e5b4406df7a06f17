"""Small lists that tell what kind of thing a name stands for."""

from __future__ import annotations

from hirag_dist.llm.rule_based.word_lists import word_set


def _names(text: str) -> frozenset[str]:
    return frozenset(part.strip() for part in text.replace("\n", " ").split(",") if part.strip())


PLACES = _names(
    """africa, antarctica, asia, europe, north america, south america, latin america, central america, oceania, middle
    east, scandinavia, balkans, caribbean, arctic, atlantic, pacific, mediterranean, siberia, eurasia, afghanistan,
    albania, algeria, argentina, armenia, australia, austria, azerbaijan, bahrain, bangladesh, belarus, belgium,
    bolivia, bosnia, botswana, brazil, bulgaria, cambodia, cameroon, canada, chad, chile, china, colombia, congo,
    costa rica, croatia, cuba, cyprus, czech republic, czechoslovakia, denmark, dominican republic, ecuador, egypt,
    el salvador, england, estonia, ethiopia, fiji, finland, france, gambia, germany, ghana, great britain, greece,
    greenland, guatemala, haiti, honduras, hong kong, hungary, iceland, india, indonesia, iran, iraq, ireland,
    israel, italy, ivory coast, jamaica, japan, jordan, kazakhstan, kenya, korea, north korea, south korea, kuwait,
    laos, latvia, lebanon, liberia, libya, lithuania, luxembourg, macedonia, madagascar, malaysia, mali, malta,
    mexico, moldova, mongolia, morocco, mozambique, myanmar, namibia, nepal, netherlands, new zealand, nicaragua,
    niger, nigeria, northern ireland, norway, oman, pakistan, palestine, panama, papua new guinea, paraguay, peru,
    philippines, poland, portugal, prussia, puerto rico, qatar, romania, russia, rwanda, saudi arabia, scotland,
    senegal, serbia, sierra leone, singapore, slovakia, slovenia, somalia, south africa, soviet union, spain, sri
    lanka, sudan, sweden, switzerland, syria, taiwan, tanzania, thailand, tibet, tunisia, turkey, uganda, ukraine,
    united kingdom, uk, united states, united states of america, usa, u.s, u.s.a, uruguay, uzbekistan, venezuela,
    vietnam, wales, yemen, yugoslavia, zambia, zimbabwe, alabama, alaska, arizona, arkansas, california, colorado,
    connecticut, delaware, florida, georgia, hawaii, idaho, illinois, indiana, iowa, kansas, kentucky, louisiana,
    maine, maryland, massachusetts, michigan, minnesota, mississippi, missouri, montana, nebraska, nevada, new
    hampshire, new jersey, new mexico, new york, north carolina, north dakota, ohio, oklahoma, oregon, pennsylvania,
    rhode island, south carolina, south dakota, tennessee, texas, utah, vermont, virginia, west virginia, wisconsin,
    wyoming, ontario, quebec, british columbia, alberta, queensland, new south wales, tasmania, bavaria, saxony,
    brandenburg, normandy, brittany, flanders, tuscany, sicily, catalonia, castile, aragon, navarre, andalusia,
    crimea, punjab, bengal, kerala, tamil nadu, karnataka, maharashtra, himachal pradesh, andhra pradesh, uttar
    pradesh, yorkshire, lancashire, cornwall, kent, essex, sussex, surrey, amsterdam, ankara, antwerp, athens,
    atlanta, auckland, baghdad, baltimore, bangkok, barcelona, beijing, beirut, belfast, belgrade, berlin,
    birmingham, bologna, bombay, bonn, boston, bristol, brooklyn, brussels, bucharest, budapest, buenos aires,
    cairo, calcutta, cambridge, cape town, chennai, chicago, cincinnati, cleveland, cologne, copenhagen, dallas,
    damascus, delhi, denver, detroit, dresden, dubai, dublin, edinburgh, florence, frankfurt, geneva, genoa,
    glasgow, hamburg, hanoi, helsinki, hollywood, houston, istanbul, constantinople, jakarta, jerusalem,
    johannesburg, kiev, kyiv, kyoto, kolkata, las vegas, leeds, leipzig, leningrad, lima, lisbon, liverpool, london,
    los angeles, louisville, lyon, madrid, manchester, manhattan, manila, marseille, mecca, melbourne, memphis,
    mexico city, miami, milan, minneapolis, montreal, moscow, mumbai, munich, naples, new delhi, new orleans, new
    york city, nottingham, oslo, ottawa, oxford, paris, philadelphia, pittsburgh, prague, rome, rotterdam, saint
    petersburg, st. petersburg, san diego, san francisco, santiago, seattle, seoul, shanghai, sheffield, stockholm,
    stuttgart, sydney, tehran, tel aviv, tokyo, toronto, turin, vancouver, venice, vienna, warsaw, washington,
    washington d.c, york, zagreb, zurich, 中国,
    北京, 上海, 日本, 东京, 東京, 南京, 大阪, 京都, россия, москва, украина, киев,
    deutschland, münchen, köln, wien, österreich"""
)

DEMONYMS = word_set(
    "african american arab argentine asian australian austrian bavarian belgian bengali brazilian british bulgarian",
    "canadian castilian catalan chilean chinese colombian croatian cuban czech danish dutch egyptian english",
    "estonian ethiopian european filipino finnish flemish french german ghanaian greek hindu hungarian icelandic",
    "indian indonesian iranian iraqi irish islamic israeli italian jamaican japanese jewish kenyan korean latin",
    "latvian lebanese lithuanian malaysian mexican mongolian moroccan muslim nepalese nigerian norman norwegian",
    "ottoman pakistani palestinian persian peruvian polish portuguese prussian roman romanian russian saxon",
    "scottish serbian slovak slovenian soviet spanish swedish swiss syrian taiwanese tamil telugu thai tibetan",
    "tunisian turkish ukrainian venezuelan vietnamese victorian welsh yugoslav christian catholic protestant anglo",
    "scots americans germans britons romans jews muslims christians russians indians frenchman englishman catholics",
    "protestants turks greeks",
)

# Last word of a name → kind.
ORGANIZATION_TAILS = word_set(
    "inc corp corporation company co ltd llc plc gmbh ag group holdings bank trust foundation university college",
    "school academy institute institution laboratory laboratories lab society association union federation league",
    "club team party committee commission council agency authority ministry department bureau polytechnic community",
    "label music jam centre center office board parliament senate congress assembly court army navy force forces",
    "corps regiment brigade division battalion guard police church orchestra band records entertainment studios",
    "studio pictures productions press publications publishing times post herald tribune gazette journal magazine",
    "network broadcasting television radio airlines airways railway railways motors industries systems technologies",
    "partners associates brothers organization organisation hospital museum library conference cabinet government",
    "administration service services fc afc united rovers wanderers rangers order",
)
ORGANIZATION_HEADS = word_set("university college school institute department ministry bank church house society")
LOCATION_TAILS = word_set(
    "basin zone aqueduct spa site area plain delta cliff cove pond reservoir waterfall crater canyon ranch villa",
    "manor river lake street avenue road lane square county city town village state province district region valley",
    "mountain mountains mount hill hills island islands bay beach coast desert forest park garden gardens bridge",
    "castle palace cathedral abbey temple tower airport station stadium arena theatre theater hall house hotel inn",
    "farm port harbour harbor sea ocean peninsula cape canal creek falls springs fort prison cemetery highway route",
    "territory kingdom empire republic borough parish township municipality ward heights plateau mosque basilica",
    "monastery priory borderlands lands worlds glacier gulf strait channel pass terrace",
)
LOCATION_HEADS = word_set(
    "county villa ciudad rio lake mount mt mt. fort port cape isle gulf bay san santa saint-denis los las"
)
EVENT_TAILS = word_set(
    "war wars battle siege revolution rebellion uprising revolt festival championship championships cup olympics",
    "games tournament election elections crisis massacre conference summit treaty plague campaign crusade riots",
    "trial trials ceremony race grand-prix tour giro open derby conquest invasion coup famine pandemic epidemic",
    "renaissance christmas easter ramadan halloween reformation",
)
EVENT_HEADS = word_set("battle siege war treaty conquest massacre tour giro feast festival")
PRODUCT_TAILS = word_set(
    "album song film movie novel book poem symphony opera series show game single magazine act bill code bible",
    "edition award prize medal dataset corpus package",
)
TECHNOLOGY_TAILS = word_set(
    "model network algorithm method software system engine protocol technique framework vehicle rocket",
    "satellite machine computer device detector encoder decoder classifier transformer architecture platform",
    "database processor circuit sensor laser microscope embedding library api toolkit interface optimizer learning",
    "kernel",
)
PERSON_TITLES = word_set(
    "mr mrs ms miss dr prof professor sir lord lady king queen prince princess duke duchess earl count countess",
    "baron baroness emperor empress tsar pope saint st bishop archbishop cardinal father brother sister mother",
    "captain capt colonel col general gen major lieutenant lt sergeant sgt admiral commander president senator",
    "governor minister chancellor judge justice rev reverend madame mme monsieur mademoiselle mlle don doña donna",
    "señor uncle aunt herr frau comrade sultan shah sheikh maharaja margrave viscount marquis marquess hon messrs",
    "taoiseach coach",
)
# Titles that stand before a surname and say nothing but who is meant.
PLAIN_TITLES = word_set(
    "mr mrs ms miss dr prof professor sir lord lady madame mme monsieur mademoiselle mlle m capt captain"
)
FIRST_NAMES = word_set(
    "aaron adam adrian alan albert alex alexander alfred alice amy andrea andrew angela ann anna anne anthony",
    "antonio archibald arthur august barbara benjamin bernard betty bill bob bobby brian bruce carl carlos carol",
    "caroline catherine charles charlotte chris christian christina christopher claire claude colin daniel david",
    "deborah dennis diana donald dorothy douglas ebenezer edgar edith edmund edward eleanor elizabeth ellen emily",
    "emma eric ernest eugene eva evelyn florence francis frank franz fred frederick friedrich gary geoffrey george",
    "gerald gilbert gordon grace graham greg hans harold harry heinrich helen henri henry herbert howard hugh ian",
    "irene isaac isabella ivan jack jacob jacques james jane jason jean jeffrey jennifer jerry jessica jim joan joe",
    "johann john jon jonathan jorge jose josé joseph juan julia julian karen karl kate katherine keith kenneth",
    "kevin larry laura lawrence leo leon leonard lewis linda lisa lois louis louise lucy luis luke madonna margaret",
    "maria marie mark martha martin mary matthew max megan meg michael michel miguel mike miriam nancy nathan",
    "nicholas nick norman oliver oscar patricia patrick paul pedro percy peter philip philippe pierre rachel ralph",
    "raymond rebecca richard rita robert roger ronald rose roy russell ruth sally sam samuel sandra sara sarah",
    "scott sean simon sophia sophie stanley stephen steve steven stuart susan ted terry theodore thomas tim timothy",
    "tom tommy tony ursula victor victoria vincent virginia walter wayne wilhelm will william willy alexey sergei",
    "vladimir dmitri nikolai иван пётр анна мария сергей александр николай",
)
SPEECH = word_set(
    "said says say asked asks replied replies cried answered told tells whispered shouted exclaimed remarked",
    "muttered returned thought argued argues wrote writes claims claimed stated explained declared believed born",
    "died married directed starred sang played retired who whose сказал сказала ответил",
)
# Surnames that begin a Chinese name, and what follows one that speaks.
CHINESE_SURNAMES = frozenset(
    "王李张刘陈杨黄赵吴周徐孙马朱胡郭何高林罗郑梁谢宋唐许韩冯邓曹彭曾萧田董袁潘蒋蔡余杜叶程苏魏吕丁任沈姚卢姜崔钟谭陆汪范金石廖贾夏韦付方"
    "白邹孟熊秦邱江尹薛闫段雷侯龙史陶黎贺顾毛郝龚邵万钱严覃武戴莫孔向汤常猪沙汤张"
)

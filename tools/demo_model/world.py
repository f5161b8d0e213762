"""Facts of the demo model's small world: everything here is written out by hand.

Each table is plain text, one record per line or per '/', so that it is easy to read and to extend.
Chinese and English stand side by side.
"""


def _rows(text):
    return [tuple(f.strip() for f in r.split("|")) for r in text.replace("\n", "/").split("/") if r.strip()]


def _words(text):
    return text.split()


# country | capital | country in Chinese | capital in Chinese
COUNTRIES = _rows("""
France|Paris|法国|巴黎 / Germany|Berlin|德国|柏林 / Italy|Rome|意大利|罗马 / Spain|Madrid|西班牙|马德里
Portugal|Lisbon|葡萄牙|里斯本 / the United Kingdom|London|英国|伦敦 / Ireland|Dublin|爱尔兰|都柏林
the Netherlands|Amsterdam|荷兰|阿姆斯特丹 / Belgium|Brussels|比利时|布鲁塞尔 / Luxembourg|Luxembourg City|卢森堡|卢森堡市
Switzerland|Bern|瑞士|伯尔尼 / Austria|Vienna|奥地利|维也纳 / Poland|Warsaw|波兰|华沙 / the Czech Republic|Prague|捷克|布拉格
Slovakia|Bratislava|斯洛伐克|布拉迪斯拉发 / Hungary|Budapest|匈牙利|布达佩斯 / Romania|Bucharest|罗马尼亚|布加勒斯特
Bulgaria|Sofia|保加利亚|索非亚 / Greece|Athens|希腊|雅典 / Turkey|Ankara|土耳其|安卡拉 / Croatia|Zagreb|克罗地亚|萨格勒布
Serbia|Belgrade|塞尔维亚|贝尔格莱德 / Slovenia|Ljubljana|斯洛文尼亚|卢布尔雅那 / Albania|Tirana|阿尔巴尼亚|地拉那
Denmark|Copenhagen|丹麦|哥本哈根 / Sweden|Stockholm|瑞典|斯德哥尔摩 / Norway|Oslo|挪威|奥斯陆 / Finland|Helsinki|芬兰|赫尔辛基
Iceland|Reykjavik|冰岛|雷克雅未克 / Estonia|Tallinn|爱沙尼亚|塔林 / Latvia|Riga|拉脱维亚|里加 / Lithuania|Vilnius|立陶宛|维尔纽斯
Russia|Moscow|俄罗斯|莫斯科 / Ukraine|Kyiv|乌克兰|基辅 / Belarus|Minsk|白俄罗斯|明斯克 / Georgia|Tbilisi|格鲁吉亚|第比利斯
Armenia|Yerevan|亚美尼亚|埃里温 / Azerbaijan|Baku|阿塞拜疆|巴库 / Malta|Valletta|马耳他|瓦莱塔 / Cyprus|Nicosia|塞浦路斯|尼科西亚
China|Beijing|中国|北京 / Japan|Tokyo|日本|东京 / South Korea|Seoul|韩国|首尔 / North Korea|Pyongyang|朝鲜|平壤
Mongolia|Ulaanbaatar|蒙古|乌兰巴托 / India|New Delhi|印度|新德里 / Pakistan|Islamabad|巴基斯坦|伊斯兰堡
Bangladesh|Dhaka|孟加拉国|达卡 / Nepal|Kathmandu|尼泊尔|加德满都 / Bhutan|Thimphu|不丹|廷布 / Sri Lanka|Colombo|斯里兰卡|科伦坡
Myanmar|Naypyidaw|缅甸|内比都 / Thailand|Bangkok|泰国|曼谷 / Vietnam|Hanoi|越南|河内 / Laos|Vientiane|老挝|万象
Cambodia|Phnom Penh|柬埔寨|金边 / Malaysia|Kuala Lumpur|马来西亚|吉隆坡 / Indonesia|Jakarta|印度尼西亚|雅加达
the Philippines|Manila|菲律宾|马尼拉 / Singapore|Singapore|新加坡|新加坡 / Kazakhstan|Astana|哈萨克斯坦|阿斯塔纳
Uzbekistan|Tashkent|乌兹别克斯坦|塔什干 / Iran|Tehran|伊朗|德黑兰 / Iraq|Baghdad|伊拉克|巴格达 / Syria|Damascus|叙利亚|大马士革
Lebanon|Beirut|黎巴嫩|贝鲁特 / Jordan|Amman|约旦|安曼 / Saudi Arabia|Riyadh|沙特阿拉伯|利雅得 / Qatar|Doha|卡塔尔|多哈
Kuwait|Kuwait City|科威特|科威特城 / Oman|Muscat|阿曼|马斯喀特 / Yemen|Sanaa|也门|萨那 / Egypt|Cairo|埃及|开罗
Libya|Tripoli|利比亚|的黎波里 / Tunisia|Tunis|突尼斯|突尼斯市 / Algeria|Algiers|阿尔及利亚|阿尔及尔 / Morocco|Rabat|摩洛哥|拉巴特
Sudan|Khartoum|苏丹|喀土穆 / Ethiopia|Addis Ababa|埃塞俄比亚|亚的斯亚贝巴 / Kenya|Nairobi|肯尼亚|内罗毕 / Uganda|Kampala|乌干达|坎帕拉
Rwanda|Kigali|卢旺达|基加利 / Somalia|Mogadishu|索马里|摩加迪沙 / Nigeria|Abuja|尼日利亚|阿布贾 / Ghana|Accra|加纳|阿克拉
Senegal|Dakar|塞内加尔|达喀尔 / Mali|Bamako|马里|巴马科 / Angola|Luanda|安哥拉|罗安达 / Zambia|Lusaka|赞比亚|卢萨卡
Zimbabwe|Harare|津巴布韦|哈拉雷 / Namibia|Windhoek|纳米比亚|温得和克 / Madagascar|Antananarivo|马达加斯加|塔那那利佛
Mozambique|Maputo|莫桑比克|马普托 / Botswana|Gaborone|博茨瓦纳|哈博罗内 / the United States|Washington, D.C.|美国|华盛顿
Canada|Ottawa|加拿大|渥太华 / Mexico|Mexico City|墨西哥|墨西哥城 / Cuba|Havana|古巴|哈瓦那 / Jamaica|Kingston|牙买加|金斯敦
Haiti|Port-au-Prince|海地|太子港 / Panama|Panama City|巴拿马|巴拿马城 / Costa Rica|San José|哥斯达黎加|圣何塞
Nicaragua|Managua|尼加拉瓜|马那瓜 / Honduras|Tegucigalpa|洪都拉斯|特古西加尔巴 / Colombia|Bogotá|哥伦比亚|波哥大
Venezuela|Caracas|委内瑞拉|加拉加斯 / Ecuador|Quito|厄瓜多尔|基多 / Peru|Lima|秘鲁|利马 / Chile|Santiago|智利|圣地亚哥
Argentina|Buenos Aires|阿根廷|布宜诺斯艾利斯 / Uruguay|Montevideo|乌拉圭|蒙得维的亚 / Paraguay|Asunción|巴拉圭|亚松森
Brazil|Brasília|巴西|巴西利亚 / Australia|Canberra|澳大利亚|堪培拉 / New Zealand|Wellington|新西兰|惠灵顿 / Fiji|Suva|斐济|苏瓦
""")

ALIASES = {"the United States": ["the USA", "the US", "America", "the United States of America"], "the United Kingdom": ["the UK", "Britain", "Great Britain"],
           "the Netherlands": ["Holland"], "the Czech Republic": ["Czechia"], "South Korea": ["Korea"], "Turkey": ["Türkiye"], "China": ["the People's Republic of China"]}

# single words, English | Chinese (each pair is unambiguous inside this world)
WORDS = _rows("""
dog|狗 / cat|猫 / bird|鸟 / fish|鱼 / horse|马 / cow|牛 / sheep|羊 / pig|猪 / chicken|鸡 / duck|鸭子 / rabbit|兔子 / tiger|老虎
lion|狮子 / elephant|大象 / monkey|猴子 / panda|熊猫 / bear|熊 / wolf|狼 / fox|狐狸 / snake|蛇 / mouse|老鼠 / dragon|龙 / bee|蜜蜂
butterfly|蝴蝶 / frog|青蛙 / turtle|乌龟 / whale|鲸鱼 / apple|苹果 / banana|香蕉 / orange|橙子 / grape|葡萄 / peach|桃子 / pear|梨
watermelon|西瓜 / strawberry|草莓 / lemon|柠檬 / rice|米饭 / bread|面包 / noodles|面条 / egg|鸡蛋 / meat|肉 / soup|汤 / milk|牛奶
water|水 / tea|茶 / coffee|咖啡 / juice|果汁 / beer|啤酒 / wine|葡萄酒 / sugar|糖 / salt|盐 / cake|蛋糕 / chocolate|巧克力 / cheese|奶酪
potato|土豆 / tomato|西红柿 / carrot|胡萝卜 / onion|洋葱 / vegetable|蔬菜 / fruit|水果 / breakfast|早饭 / lunch|午饭 / dinner|晚饭
house|房子 / door|门 / window|窗户 / table|桌子 / chair|椅子 / bed|床 / kitchen|厨房 / key|钥匙 / lamp|灯 / clock|钟 / knife|刀
cup|杯子 / bowl|碗 / bottle|瓶子 / book|书 / pen|笔 / paper|纸 / newspaper|报纸 / letter|信 / dictionary|词典 / computer|电脑 / phone|电话
television|电视 / camera|相机 / car|汽车 / bus|公共汽车 / train|火车 / plane|飞机 / ship|船 / bicycle|自行车 / taxi|出租车 / road|路
bridge|桥 / city|城市 / country|国家 / village|村庄 / school|学校 / university|大学 / library|图书馆 / hospital|医院 / bank|银行 / shop|商店
restaurant|饭馆 / hotel|酒店 / airport|机场 / park|公园 / museum|博物馆 / market|市场 / factory|工厂 / office|办公室 / sun|太阳 / moon|月亮
star|星星 / sky|天空 / cloud|云 / rain|雨 / snow|雪 / wind|风 / fire|火 / mountain|山 / river|河 / sea|大海 / lake|湖 / island|岛
forest|森林 / tree|树 / flower|花 / grass|草 / leaf|叶子 / stone|石头 / earth|地球 / world|世界 / spring|春天 / summer|夏天 / autumn|秋天
winter|冬天 / morning|早上 / evening|晚上 / night|夜 / today|今天 / tomorrow|明天 / yesterday|昨天 / year|年 / month|月 / week|星期 / hour|小时
minute|分钟 / father|父亲 / mother|母亲 / brother|兄弟 / sister|姐妹 / son|儿子 / daughter|女儿 / friend|朋友 / teacher|老师 / student|学生
doctor|医生 / nurse|护士 / engineer|工程师 / driver|司机 / cook|厨师 / writer|作家 / farmer|农民 / lawyer|律师 / child|孩子 / baby|婴儿
man|男人 / woman|女人 / head|头 / eye|眼睛 / ear|耳朵 / nose|鼻子 / mouth|嘴 / hand|手 / foot|脚 / heart|心 / hair|头发 / tooth|牙齿
red|红色 / blue|蓝色 / green|绿色 / yellow|黄色 / black|黑色 / white|白色 / purple|紫色 / brown|棕色 / pink|粉色 / gray|灰色
big|大 / small|小 / long|长 / short|短 / tall|高 / hot|热 / cold|冷 / new|新 / old|旧 / good|好 / bad|坏 / fast|快 / slow|慢
happy|高兴 / sad|伤心 / beautiful|美丽 / expensive|贵 / cheap|便宜 / easy|容易 / difficult|难 / tired|累 / hungry|饿 / busy|忙
eat|吃 / drink|喝 / sleep|睡觉 / run|跑 / walk|走 / swim|游泳 / read|读 / write|写 / speak|说 / listen|听 / see|看见 / buy|买 / sell|卖
work|工作 / study|学习 / love|爱 / help|帮助 / open|打开 / close|关闭 / sing|唱歌 / dance|跳舞 / laugh|笑 / cry|哭
music|音乐 / song|歌 / film|电影 / game|游戏 / sport|运动 / football|足球 / money|钱 / gift|礼物 / dream|梦 / time|时间 / language|语言
peace|和平 / freedom|自由 / health|健康 / science|科学 / history|历史 / art|艺术 / weather|天气 / question|问题 / answer|答案 / name|名字
""")

# short sentences, English | Chinese
SENTENCES = _rows("""
Good morning.|早上好。 / Good night.|晚安。 / How are you?|你好吗？ / Thank you very much.|非常感谢。 / You are welcome.|不客气。
I am sorry.|对不起。 / See you tomorrow.|明天见。 / Happy birthday!|生日快乐！ / Happy new year!|新年快乐！ / I love you.|我爱你。
What is your name?|你叫什么名字？ / Where are you from?|你来自哪里？ / How old are you?|你多大了？ / What time is it?|现在几点？
I do not know.|我不知道。 / I am hungry.|我饿了。 / I am tired.|我累了。 / I am very happy.|我很高兴。 / It is raining.|下雨了。
It is snowing.|下雪了。 / The weather is nice today.|今天天气很好。 / It is very cold.|天气很冷。 / It is very hot.|天气很热。
I like tea.|我喜欢茶。 / I like music.|我喜欢音乐。 / I like this book.|我喜欢这本书。 / I want to sleep.|我想睡觉。 / I want to go home.|我想回家。
Please sit down.|请坐。 / Please wait a moment.|请等一下。 / Please help me.|请帮帮我。 / Where is the station?|车站在哪里？
Where is the toilet?|洗手间在哪里？ / How much is it?|多少钱？ / It is too expensive.|太贵了。 / I do not understand.|我不明白。
I am a student.|我是学生。 / I am a teacher.|我是老师。 / She is my friend.|她是我的朋友。 / He is a doctor.|他是医生。
This is my house.|这是我的家。 / The cat is sleeping.|猫在睡觉。 / The dog is running.|狗在跑。 / The child is crying.|孩子在哭。
We are learning Chinese.|我们在学中文。 / I speak English.|我说英语。 / No problem.|没问题。 / Have a good trip.|一路平安。
The book is on the table.|书在桌子上。 / Let us go.|我们走吧。 / I have two brothers.|我有两个兄弟。 / The moon is beautiful.|月亮很美。
Today is Monday.|今天是星期一。 / Tomorrow is Sunday.|明天是星期天。 / I drink coffee in the morning.|我早上喝咖啡。
""")

# sentence frames for translation: filled with words of the given list
FRAMES = [
    ("I like {}.", "我喜欢{}。", "nouns"), ("I want to buy a {}.", "我想买一个{}。", "nouns"),
    ("This is a {}.", "这是一个{}。", "nouns"), ("Where is the {}?", "{}在哪里？", "nouns"),
    ("The {} is very big.", "{}很大。", "nouns"), ("I see a {}.", "我看见一个{}。", "nouns"),
    ("My {} is new.", "我的{}是新的。", "nouns"), ("I do not have a {}.", "我没有{}。", "nouns"),
]
NOUNS = _words("dog cat bird horse rabbit tiger panda apple banana peach pear watermelon lemon cake house table chair bed lamp "
               "clock cup bowl bottle book pen newspaper letter dictionary computer phone camera car bicycle ship bridge "
               "school library hospital bank restaurant hotel museum flower tree gift knife key")
ZH_OF = dict(WORDS)

NAMES = _words("""Anna Ben Clara David Emma Frank Grace Henry Isabel Jack Kate Liam Mia Noah Olivia Peter Quinn Rosa Sam Tina Uma
Victor Wendy Xavier Yara Zoe Alice Bob Carol Daniel Eva Felix Greta Hugo Ivan Julia Karl Laura Marco Nina Oscar Paula Ravi Sara
Tom Ursula Vera Will Yusuf Zara Adam Bella Carlos Diana Ethan Fatima George Hanna Igor Jane Kevin Lucy Martin Nora Omar Pablo
Rachel Simon Teresa Umar Vivian Walter Amir Bianca Cedric Daisy Elena Finn Gina Harold Irene Jonas Kira Leo Maria Nick Otto
Priya Robert Sofia Theo Ulrich Valerie Wanda Yuki Zack Aisha Bruno Chloe Dmitri Esther Fiona Gustav Helen Ingrid James Katya""")
ZH_SURNAMES = list("王李张刘陈杨赵黄周吴徐孙胡朱高林何郭马罗梁宋郑谢韩唐冯于董萧")
ZH_GIVEN = list("伟芳娜敏静丽强磊军洋勇艳杰娟涛明超霞平刚桂英华玉兰红梅琳晨宇欣雨雪佳文思天一子涵浩然嘉诗婷")
CITIES = _rows("""Paris|巴黎 / London|伦敦 / Rome|罗马 / Berlin|柏林 / Madrid|马德里 / Tokyo|东京 / Beijing|北京 / Shanghai|上海
Shenzhen|深圳 / Hangzhou|杭州 / Chengdu|成都 / Guangzhou|广州 / Xi'an|西安 / Nanjing|南京 / New York|纽约 / Chicago|芝加哥 / Boston|波士顿
Seattle|西雅图 / Toronto|多伦多 / Sydney|悉尼 / Melbourne|墨尔本 / Vienna|维也纳 / Prague|布拉格 / Lisbon|里斯本 / Dublin|都柏林
Athens|雅典 / Oslo|奥斯陆 / Helsinki|赫尔辛基 / Munich|慕尼黑 / Hamburg|汉堡 / Milan|米兰 / Venice|威尼斯 / Barcelona|巴塞罗那
Moscow|莫斯科 / Istanbul|伊斯坦布尔 / Cairo|开罗 / Nairobi|内罗毕 / Mumbai|孟买 / Bangkok|曼谷 / Singapore|新加坡 / Seoul|首尔
Osaka|大阪 / Kyoto|京都 / Hanoi|河内 / Lima|利马 / Santiago|圣地亚哥 / Warsaw|华沙 / Budapest|布达佩斯 / Zurich|苏黎世 / Geneva|日内瓦""")
JOBS = _rows("""teacher|老师 / doctor|医生 / nurse|护士 / engineer|工程师 / driver|司机 / cook|厨师 / writer|作家 / farmer|农民 / lawyer|律师
painter|画家 / singer|歌手 / pilot|飞行员 / baker|面包师 / student|学生 / scientist|科学家 / photographer|摄影师 / musician|音乐家
programmer|程序员 / gardener|园丁 / journalist|记者""")
COLORS = _rows("red|红色 / blue|蓝色 / green|绿色 / yellow|黄色 / black|黑色 / white|白色 / purple|紫色 / pink|粉色 / orange|橙色 / brown|棕色")
FOODS = _rows("pizza|披萨 / sushi|寿司 / noodles|面条 / dumplings|饺子 / rice|米饭 / soup|汤 / salad|沙拉 / chocolate|巧克力 / cake|蛋糕 / bread|面包 / cheese|奶酪 / fish|鱼")
ANIMALS = _rows("dog|狗 / cat|猫 / rabbit|兔子 / parrot|鹦鹉 / turtle|乌龟 / goldfish|金鱼 / hamster|仓鼠 / horse|马")
HOBBIES = _rows("swimming|游泳 / reading|阅读 / dancing|跳舞 / singing|唱歌 / painting|画画 / cooking|做饭 / hiking|爬山 / chess|下棋 / cycling|骑车 / photography|摄影")
DAYS = _rows("Monday|星期一 / Tuesday|星期二 / Wednesday|星期三 / Thursday|星期四 / Friday|星期五 / Saturday|星期六 / Sunday|星期日")
MONTHS = _rows("January|一月 / February|二月 / March|三月 / April|四月 / May|五月 / June|六月 / July|七月 / August|八月 / September|九月 / October|十月 / November|十一月 / December|十二月")
ZH_DIGITS = "零一二三四五六七八九十"

# things the model does not know about: topics for "I only know ..." answers
TOPICS = _rows("""quantum physics|量子物理 / the stock market|股市 / black holes|黑洞 / the French Revolution|法国大革命 / Napoleon|拿破仑 / Einstein|爱因斯坦
Shakespeare|莎士比亚 / the World Cup|世界杯 / the Olympics|奥运会 / climate change|气候变化 / photosynthesis|光合作用 / DNA|基因 / vaccines|疫苗
bitcoin|比特币 / blockchain|区块链 / machine learning|机器学习 / Python|编程 / JavaScript|网页开发 / SQL databases|数据库 / Linux|操作系统
the Roman Empire|罗马帝国 / the Great Wall|长城 / dinosaurs|恐龙 / volcanoes|火山 / earthquakes|地震 / the solar system|太阳系 / Mars|火星 / Jupiter|木星
the moon landing|登月 / Mozart|莫扎特 / Beethoven|贝多芬 / Picasso|毕加索 / jazz|爵士乐 / ballet|芭蕾 / philosophy|哲学 / psychology|心理学
taxes|税收 / insurance|保险 / mortgages|房贷 / inflation|通货膨胀 / democracy|民主制度 / chess openings|象棋开局 / basketball|篮球 / tennis|网球
yoga|瑜伽 / marathon running|马拉松 / nutrition|营养学 / sleep disorders|睡眠障碍 / headaches|头痛 / antibiotics|抗生素 / gardening|园艺 / beekeeping|养蜂
car engines|汽车发动机 / electric cars|电动车 / airplanes|航空 / bridges|桥梁工程 / architecture|建筑学 / fashion|时尚 / poetry|诗歌 / novels|小说
horror films|恐怖片 / anime|动漫 / video games|电子游戏 / board games|桌游 / magic tricks|魔术 / astrology|占星术 / ghosts|鬼魂 / mythology|神话
the pyramids|金字塔 / penguins|企鹅 / sharks|鲨鱼 / oceans|海洋 / rainforests|雨林 / deserts|沙漠 / glaciers|冰川 / nuclear energy|核能 / solar panels|太阳能板
""")
FAKE_PLACES = _words("""Atlantis Narnia Gondor Wakanda Mordor Utopia Avalon Lilliput Zorvania Blorgia Kravistan Eldoria Mirland Tarkovia Novaria
Quelland Drumovia Pellistan Olmeria Vastoria Hogsland Yemlia Brinland Sorania Ulvania Crenia Fostovia Galdania Huristan Jorvia""")

# everyday requests outside the model's world
CHATTER = [[x[0] for x in _rows("""Once upon a time | Tell me a story. | Tell me a fun fact. | Name three animals. | Name five fruits. | What is the meaning of life? | Write a haiku.
Write a poem. | Write some code. | Write a Python function that adds two numbers. | asdf | test | Testing, testing. | What day is it today? | What is the date? | Sing me a song. | Give me advice.
What should I cook tonight? | What should I wear? | Do you love me? | Are you happy? | Can you see me? | Where am I? | What is love? | Recommend a film. | Who won the game? | Who is the best singer?
How do I get rich? | How do I lose weight? | Give me a recipe. | Solve this riddle. | What is the tallest mountain? | How far is the moon? | Why is the sky blue? | How many people live on earth?
What is the speed of light? | Who wrote Hamlet? | Who painted the Mona Lisa? | When was the last war? | Plan my holiday. | Write an email to my boss. | Summarize this article. | Fix my code. | Draw a picture.
Translate into French: hello | How do you say dog in Spanish? | How do you say water in German? | What is the square root of 2? | What is 12 divided by 4? | Is it going to rain tomorrow? | Book me a flight.
Order a pizza. | Call my mother. | Let us play a game. | Guess a number. | What is your favourite color? | What is your favourite city? | Do you have a pet? | How old are you? | Where do you live? | What is AI?
What is a transformer? | Explain quantum computing in simple terms. | What is the largest country? | Which is the longest river? | Lorem ipsum dolor sit amet | The quick brown fox jumps over the lazy dog. | xyz | foo bar""".replace("|", "\n"))],
           [x[0] for x in _rows("""讲个故事。 | 说三种动物。 | 人生的意义是什么？ | 写一首诗。 | 写一段代码。 | 测试 | 今天几号？ | 今天星期几？ | 唱首歌。 | 给我一些建议。 | 今晚吃什么？ | 我该穿什么？ | 你爱我吗？ | 我在哪里？ | 什么是爱？
推荐一部电影。 | 谁赢了比赛？ | 怎么赚钱？ | 怎么减肥？ | 世界上最高的山是什么？ | 天空为什么是蓝色的？ | 月亮有多远？ | 光速是多少？ | 帮我订机票。 | 给我妈妈打电话。 | 我们玩游戏吧。 | 你多大了？ | 你住在哪里？
什么是人工智能？ | 最大的国家是哪个？ | 最长的河是哪条？ | 从前有一座山 | 帮我写邮件。 | 总结这篇文章。 | 画一幅画。 | 明天会下雨吗？ | 你最喜欢什么颜色？ | 法语的你好怎么说？ | 二的平方根是多少？""".replace("|", "\n"))]]

SYSTEM_EN = ["You are a helpful assistant.", "You are Skiff's demo model.", "You are a friendly assistant. Answer briefly.", "Be concise.",
             "You are a helpful AI assistant. Answer the user's questions.", "Answer in full sentences.", "You are an expert assistant.",
             "You are a polite and honest assistant.", "Help the user as well as you can.", "You are a chat bot on a website.",
             "You are an assistant that can call tools.", "Today is a sunny day. Be kind to the user.", "You are a careful assistant who never makes things up."]
SYSTEM_ZH = ["你是一个乐于助人的助手。", "你是 Skiff 的演示模型。", "你是一个友好的助手，请简短回答。", "请用完整的句子回答。", "你是一个智能助手。",
             "请礼貌地回答用户的问题。", "你是网站上的聊天机器人。", "请尽力帮助用户。", "你是一个诚实的助手。"]
SYSTEM_BITS = ["You work for {} in {}.", "The user's team is called {} and sits in {}.", "Your owner is {} from {}.", "You help the customers of {} in {}.",
               "Be brief. This chat belongs to {}, {}."]
